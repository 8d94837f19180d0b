-- ends: error
return unpack({}, -1e15, 1e15)
