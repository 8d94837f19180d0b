-- ends: timeout
while true do pcall(error, "again") end
