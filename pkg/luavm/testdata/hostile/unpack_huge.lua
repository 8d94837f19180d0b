-- ends: error
return unpack({}, 1, 1e8)
