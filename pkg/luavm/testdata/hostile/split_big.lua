-- ends: error
local w = {}
for i = 1, 500 do w["t" .. i] = 1 end
return split("u", w)
