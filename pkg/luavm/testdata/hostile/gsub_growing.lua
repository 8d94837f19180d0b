-- ends: memory
return (("x"):rep(4000):gsub("x", ("y"):rep(1000)))
