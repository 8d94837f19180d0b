-- ends: memory
local t = {}
for i = 1, 9000 do t[i] = ("x"):rep(60000) .. i end
