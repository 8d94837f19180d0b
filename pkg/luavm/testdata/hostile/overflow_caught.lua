-- ends: timeout
local t = {}
for i = 1, 3000 do t[i] = i end
local function f(...) return pcall(f, ...), select("#", f(unpack(t))) end
while true do pcall(xpcall, f, f) pcall(pcall, pcall, f) end
