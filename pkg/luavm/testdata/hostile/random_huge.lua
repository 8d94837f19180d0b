-- ends: ok
return "r" .. (math.random(1, 2^52) > 0 and "" or "x")
