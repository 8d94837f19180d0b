-- ends: timeout
local s = ("a"):rep(65000)
local t = ("a"):rep(30000) .. "b"
while true do s:find(t, 1, true) end
