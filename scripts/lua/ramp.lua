-- More and more users get model_v2 as the hours pass. Who has it keeps it: each step adds users to those before.
local start = 1796112000          -- Tuesday 2026-12-01 08:00 UTC, in seconds: date -u -d '2026-12-01 08:00' +%s
local steps = {                   -- hours after the start, and percent of users from then on
    { 0,    1 },
    { 4,    5 },
    { 24,  25 },
    { 48,  50 },
    { 72, 100 },
}

local hours = (ngx.time() - start) / 3600
local percent = 0
for _, step in ipairs(steps) do
    if hours >= step[1] then
        percent = step[2]
    end
end

if sticky(call.user, percent, "ramp-2026-12") then
    return "model_v2", percent .. " percent by now"
end
return "model_v1"
