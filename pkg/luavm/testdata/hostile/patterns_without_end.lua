-- ends: timeout
local i = 0
while true do i = i + 1; ("x"):find(("%a"):rep(200) .. i) end
