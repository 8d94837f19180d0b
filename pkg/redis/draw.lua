-- All that a call owes to the buckets of one model, in one step.
--
-- KEYS     the buckets, all in one slot
-- ARGV[1]  draw: every bucket pays, or none does
--          peek: nobody pays
--          lease: the one bucket gives as many whole tokens as it has, its cost at most
-- ARGV[2]  for each bucket four little-endian doubles: tokens a second, burst, cost, and 1 if it refuses nothing
--
-- Answer   for each bucket a little-endian double: the tokens that it held. The gateway comes to the same decision
--          with them (limit.Judge), and needs no more than that.
--
-- A bucket is two little-endian doubles, the tokens it held and when, in microseconds; 16 bytes that say exactly what
-- was written. Without a key a bucket is full, so a key lives for as long as it takes to fill.

local MARGIN = 1000           -- ms a key outlives its filling, for what rounding and slow expiry may do
local LONGEST = 315360000000  -- ms, ten years: for buckets that never fill

local pack, unpack_ = struct.pack, struct.unpack
local mode, rates = ARGV[1], ARGV[2]

-- Redis' own clock: those of the gateways may differ.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local was = redis.call('MGET', unpack(KEYS))
local held, pays = {}, mode ~= 'peek'

for i = 1, #KEYS do
    local rate, burst, cost, shadow = unpack_('<dddd', rates, 32 * i - 31)
    local tokens = burst
    if was[i] and #was[i] == 16 then
        local left, at = unpack_('<dd', was[i])
        -- A clock that was set back, by hand or by a failover, refills nothing and takes nothing.
        if now > at then
            left = left + (now - at) / 1000000 * rate
        end
        tokens = math.min(math.max(left, 0), burst)
    end
    held[i] = tokens
    if mode == 'draw' and tokens < cost and shadow == 0 then
        pays = false
    end
end

-- Who is refused writes nothing: asking again and again does not put off the time when a bucket can pay.
if pays then
    for i, key in ipairs(KEYS) do
        local rate, burst, cost = unpack_('<ddd', rates, 32 * i - 31)
        if mode == 'lease' then
            cost = math.floor(math.min(cost, held[i]))
        end
        if cost > 0 and held[i] >= cost then
            local left = held[i] - cost
            local full = LONGEST
            if rate > 0 then
                full = math.min(math.ceil((burst - left) / rate * 1000) + MARGIN, LONGEST)
            end
            redis.call('SET', key, pack('<dd', left, now), 'PX', string.format('%d', full))
        end
    end
end

return pack('<' .. string.rep('d', #KEYS), unpack(held))
