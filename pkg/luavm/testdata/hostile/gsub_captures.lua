-- ends: memory
return (("x"):rep(4000):gsub("(x+)", ("%1"):rep(60)))
