-- ends: timeout
local function f() pcall(f) return 1 + f() end
while true do pcall(f) end
