-- ends: memory
rawset({}, 1e8, 1)
