-- ends: timeout
local s = ("x"):rep(60000)
while true do ngx.log(ngx.ERR, s, s) end
