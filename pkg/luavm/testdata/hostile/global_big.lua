-- ends: memory
g = "x"
while true do g = g .. g end
