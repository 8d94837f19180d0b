-- ends: timeout
local t = {}
for i = 1, 3000 do t[i] = 65 end
while true do string.char(unpack(t)) end
