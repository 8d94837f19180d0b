-- ends: memory
local t = {}
while true do table.insert(t, 1) end
