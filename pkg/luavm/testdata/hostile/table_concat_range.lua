-- ends: memory
return table.concat({}, "x", 1, 1e12)
