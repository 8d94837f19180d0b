-- ends: memory
local function f(...) return {...} end
local keep = {}
for i = 1, 1e6 do keep[i] = f(unpack(keep, 1, 1000)) end
