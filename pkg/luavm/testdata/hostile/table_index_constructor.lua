-- ends: memory
local k = 60000000
return {[k] = 1}
