-- ends: memory
local big = ("y"):rep(60000)
return (("xxxxxx"):gsub("x", function() return big end))
