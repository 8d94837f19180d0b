-- More and more users get model_v2 as the hours pass. Who has it keeps it: each step adds users to those before.
local start = 1796112000          -- Tuesday 2026-12-01 08:00 UTC; date -u -d '2026-12-01 08:00' +%s prints it
local steps = {                   -- hours after the start, percent of users from then on
    { 0,   1 },
    { 4,   5 },
    { 24, 25 },
    { 48, 50 },
    { 72, 100 },
}

local percent = 0
for _, step in ipairs(steps) do
    if ngx.time() >= start + step[1] * 3600 then
        percent = step[2]
    end
end

if hash(call.user, "ramp-2026-12") % 100 < percent then
    return "model_v2", percent .. " percent by now"
end
return "model_v1"
