-- ends: timeout
local t = {}
t[10000] = 1
t[10000] = nil
while true do local n = #t end
