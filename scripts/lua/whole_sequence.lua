-- 10 percent of users get model_v2, and sequences stay whole: the calls of a sequence go by its id, whoever they are for.
-- A model that keeps state between calls then sees all calls of a sequence, on every replica and also when they name other
-- users, or none. (Each replica keeps a sequence at its first target by itself; this does so across replicas.)
local sequence = call.sequence

if sequence then
    return split(sequence.id, { model_v1 = 90, model_v2 = 10 }, "sequences-2026-11"), "by sequence"
end
return split(call.user, { model_v1 = 90, model_v2 = 10 }, "users-2026-11"), "by user"
