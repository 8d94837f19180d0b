-- 10 percent of users get model_v2, but calls of a sequence are placed by the sequence: a model that keeps state between
-- calls sees a sequence whole, also when the calls of one sequence name different users, or none.
local key = call.sequence or call.user

return split(key, { model_v1 = 90, model_v2 = 10 })
