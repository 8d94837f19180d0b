-- Premium users get model_v2. Of everybody else this script has no opinion: the model's next rule decides, or stable.
-- The mesh sets the header x-user-type; callers without a mesh send metadata["user_type"].
local kind = call.headers["x-user-type"] or call.metadata["user_type"]

if kind == "premium" then
    return "model_v2", "premium user"
end
