-- ends: timeout
while true do local p = call.params end
