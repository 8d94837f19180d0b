-- ends: timeout
local s = ("0"):rep(65000)
while true do tonumber(s) end
