-- ends: memory
local t = {}
for i = 1, 3000 do t[i] = i end
local function f(...) return (select("#", f(unpack(t)))) end
return f()
