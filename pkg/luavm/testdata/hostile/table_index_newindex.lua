-- ends: memory
local store = {}
local t = setmetatable({}, {__newindex = store})
t[1e7] = 1
