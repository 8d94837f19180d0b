-- ends: error
local function f(a, b) local t = {3, 1, 2}; table.sort(t, f) return true end
local t = {2, 1}
table.sort(t, f)
