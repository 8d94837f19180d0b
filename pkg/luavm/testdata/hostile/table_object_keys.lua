-- ends: memory
local t = {}
while true do t[{}] = 1 end
