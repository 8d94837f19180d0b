-- ends: timeout
while true do end
