-- ends: memory
local s = ("x"):rep(65000)
while true do s:upper() end
