-- ends: error
error(("x"):rep(60000))
