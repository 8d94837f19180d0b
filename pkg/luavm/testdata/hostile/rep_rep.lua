-- ends: memory
return ("x"):rep(60000):rep(60000)
