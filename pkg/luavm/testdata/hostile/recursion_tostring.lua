-- ends: error
local t = setmetatable({}, {__tostring = function(t) return tostring(t) .. "x" end})
return tostring(t)
