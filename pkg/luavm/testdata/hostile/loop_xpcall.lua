-- ends: timeout
local function again() while true do end end
while true do xpcall(again, again) end
