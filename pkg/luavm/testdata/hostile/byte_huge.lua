-- ends: error
return ("x"):rep(65000):byte(1, -1)
