-- ends: memory
while true do ngx.req.get_headers() end
