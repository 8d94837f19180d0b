-- ends: timeout
local s = ("0"):rep(60000)
while true do pcall(function() return s + 1 end) end
