-- ends: memory
local last
while true do last = {next = last, a = 1, b = 2, c = 3} end
