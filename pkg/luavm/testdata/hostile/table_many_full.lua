-- ends: memory
local keep = {}
for i = 1, 1e6 do
  local t = {}
  for j = 1, 9999 do t[j] = j end
  keep[i] = t
end
