-- ends: timeout
local s = ("ab"):rep(2000)
for a in s:gmatch(".") do for b in s:gmatch(".-b") do end end
