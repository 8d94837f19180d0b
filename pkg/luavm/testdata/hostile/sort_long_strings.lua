-- ends: timeout
local t, s = {}, ("a"):rep(60000)
for i = 1, 60 do t[i] = s .. i end
while true do table.sort(t) end
