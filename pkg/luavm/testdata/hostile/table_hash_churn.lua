-- ends: timeout
local t = {}
for i = 1, 5000 do t["k" .. i] = i end
for i = 1, 5000 do t["k" .. i] = nil end
while true do next(t) end
