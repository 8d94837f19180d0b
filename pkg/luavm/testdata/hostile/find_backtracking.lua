-- ends: timeout
local s = ("a"):rep(4000)
local p = (".-"):rep(20) .. "b"
while true do s:find(p) end
