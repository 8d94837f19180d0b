-- ends: error
return ("a"):rep(60000):find("a-b")
