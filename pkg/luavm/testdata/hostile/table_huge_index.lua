-- ends: memory
local t = {}
t[60000000] = 1
