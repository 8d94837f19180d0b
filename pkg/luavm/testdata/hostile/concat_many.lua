-- ends: memory
local s = ("x"):rep(60000)
return s .. s .. s .. s .. s .. s .. s .. s
