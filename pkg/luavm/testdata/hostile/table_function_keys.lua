-- ends: memory
local t = {}
while true do t[function() end] = 1 end
