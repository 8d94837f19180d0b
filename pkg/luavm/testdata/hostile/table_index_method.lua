-- ends: memory
local t = {}
local i = 5e7
t[i], t[1] = function() end, 2
