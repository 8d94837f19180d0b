-- ends: memory
local keep = {}
for i = 1, 9000 do local t = {}; t[10000] = i; keep[i] = t end
