-- ends: error
local t = {}
setmetatable(t, {__index = t})
return t.x.y
