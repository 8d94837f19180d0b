-- ends: timeout
local t = {}
for i = 1, 9000 do t[i] = i end
table.sort(t, function(a, b) for i = 1, 100 do end return a > b end)
