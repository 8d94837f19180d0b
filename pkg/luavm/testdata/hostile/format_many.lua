-- ends: memory
local s = ("x"):rep(60000)
return string.format("%s%s%s%s%s%s", s, s, s, s, s, s)
