-- ends: memory
local t = {}
for i = 1, 9000 do t[i] = 1e99 end
return table.concat(t, ("x"):rep(1000))
