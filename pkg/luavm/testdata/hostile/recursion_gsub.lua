-- ends: error
local function f(x) return (("x"):gsub("x", f)) end
return f("x")
