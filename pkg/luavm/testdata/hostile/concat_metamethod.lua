-- ends: memory
local t = setmetatable({}, {__concat = function(a, b) return b .. b end})
local s = "xxxxxxxx"
while true do s = t .. s end
