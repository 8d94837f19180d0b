-- 10 percent of users get model_v2 while it is well: fewer than 2 percent of its calls fail, and 99 of 100 take at most 150 ms.
-- Below 200 calls in the last window there is too little to tell, and it has its share.
local v2 = stats("model_v2")

if v2 and v2.calls >= 200 then
    if v2.error_rate > 0.02 then
        return "model_v1", "model_v2 fails too often"
    end
    if v2.p99 > 150 then
        return "model_v1", "model_v2 is too slow"
    end
end
return split(call.user, { model_v1 = 90, model_v2 = 10 }, "guarded-2026-11")
