-- How many percent of a region's users get model_v2. A region that is not listed stays on model_v1.
local percent = {
    ["eu-west"]  = 50,
    ["eu-north"] = 10,
}

local region = call.headers["x-region"] or call.metadata["region"]

if region and percent[region] and hash(call.user, "region-2026-11") % 100 < percent[region] then
    return "model_v2", "region " .. region
end
return "model_v1"
