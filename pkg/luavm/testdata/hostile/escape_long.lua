-- ends: memory
local s = ("\255"):rep(65000)
return ngx.escape_uri(s)
