-- ends: timeout
local h = ("x"):rep(256)
while true do h:find(".-.-.-.-.-y") end
