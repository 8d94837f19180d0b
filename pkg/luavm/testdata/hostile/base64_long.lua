-- ends: memory
local s = ("x"):rep(65000)
return ngx.encode_base64(s)
