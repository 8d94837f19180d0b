-- How many percent of a region's users get model_v2. Users of a region that is not listed stay on model_v1.
local percent = {
    ["eu-west"]  = 50,
    ["eu-north"] = 10,
}

local region = call.headers["x-region"] or call.metadata["region"]
local share = region and percent[region]

if share and sticky(call.user, share, "region-2026-11") then
    return "model_v2", "region " .. region
end
return "model_v1"
