-- ends: memory
local last
while true do last = {last} end
