-- ends: timeout
local last = function() end
while true do local l = last; last = function() return l end end
