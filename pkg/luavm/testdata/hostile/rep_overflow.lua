-- ends: memory
return ("xxxxxxxx"):rep(2^60)
