-- ends: error
return select(-1e9, 1, 2)
