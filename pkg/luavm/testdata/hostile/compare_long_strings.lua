-- ends: timeout
local a, b = ("x"):rep(65000) .. "a", ("x"):rep(65000) .. "b"
while true do if b < a then return "x" end end
