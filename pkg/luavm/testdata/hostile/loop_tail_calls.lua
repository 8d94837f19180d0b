-- ends: timeout
local function f() return f() end
return f()
