-- Named users and callers get model_v2: testers first, then one service, then a rule with percents.
-- Of everybody else this script has no opinion: the model's next rule decides, or stable.
local users = { ["ann"] = true, ["bob@example.com"] = true }
local callers = { ["recommend-staging"] = true }

if call.user and users[call.user] then
    return "model_v2", "user on the list"
end
if call.caller and callers[call.caller] then
    return "model_v2", "caller on the list"
end
