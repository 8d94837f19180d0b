-- ends: timeout
return (("x"):rep(4000):gsub("x", function() while true do end end))
