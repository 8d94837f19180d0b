-- ends: timeout
local s = ("a"):rep(3000)
while true do ngx.re.match(s, "^(a+)+$b") end
