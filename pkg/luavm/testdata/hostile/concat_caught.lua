-- ends: memory
local s = ("x"):rep(40000)
while true do pcall(function() s = s .. s end) end
