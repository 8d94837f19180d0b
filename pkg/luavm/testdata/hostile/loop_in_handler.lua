-- ends: timeout
xpcall(function() error("x") end, function() while true do end end)
return "model_v2"
