-- ends: memory
local big = ("x"):rep(60000)
local t = setmetatable({}, {__index = function(t, k) return big .. big end})
return t.x
