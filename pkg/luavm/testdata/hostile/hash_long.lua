-- ends: timeout
local s = ("x"):rep(65000)
while true do ngx.crc32_short(s) hash(s, s) ngx.md5(s) end
