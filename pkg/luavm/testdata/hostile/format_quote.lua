-- ends: memory
return string.format("%q", ("\n"):rep(60000))
