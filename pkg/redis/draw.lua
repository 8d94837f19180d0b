-- What several calls owe to their buckets, in one step. Each call pays all of its buckets, or none; the calls are served
-- in the order in which they are listed, as if each had come alone.
--
-- KEYS     the buckets, each once; in a cluster all in one slot
-- ARGV[1]  for each bucket two doubles: tokens a second, burst
-- ARGV[2]  for each call a byte, what it is:
--            0  a draw: every bucket pays, or none does
--            1  a peek: nobody pays
--            2  a lease: the one bucket gives as many whole tokens as it has, its cost at most
--          and a byte, how many buckets; then for each of those 16 bits, its place in KEYS from 0, a byte, 1 if it
--          refuses nothing, and a double, its cost
--
-- Answer   for each bucket of each call a double: the tokens that it held when it was the call's turn. The gateway comes
--          to the same decision with them (limit.Judge), and needs no more than that.
--
-- Numbers are little-endian. A bucket is two doubles, the tokens it held and when, in microseconds; 16 bytes that say
-- exactly what was written. Without a key a bucket is full, so a key lives for as long as it takes to fill.

-- It is short of tables: making one and having it grow costs as much as a command.

local MARGIN = 1000           -- ms a key outlives its filling, for what rounding and slow expiry may do
local LONGEST = 315360000000  -- ms, ten years: for buckets that never fill
local DRAW, PEEK, LEASE = 0, 1, 2

local call, pack, unpack_ = redis.call, struct.pack, struct.unpack
local keys, rates, calls = KEYS, ARGV[1], ARGV[2]

-- Redis' own clock: those of the gateways may differ.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local held = call('MGET', unpack(keys)) -- as they were written, and then as they are now

for i = 1, #keys do
    local fills, tokens = unpack_('<dd', rates, 16 * i - 15)
    local bucket = held[i]
    if bucket and #bucket == 16 then
        local left, at = unpack_('<dd', bucket)
        -- A clock that was set back, by hand or by a failover, refills nothing and takes nothing.
        if now > at then
            left = left + (now - at) / 1000000 * fills
        end
        if left < 0 then
            tokens = 0
        elseif left < tokens then -- never for what is no number, and nothing of ours
            tokens = left
        end
    end
    held[i] = tokens
end

local answer, n, paid, at = {0, 0}, 0, nil, 1

while at <= #calls do
    local mode, buckets
    mode, buckets, at = unpack_('<BB', calls, at)
    local pays, first = mode ~= PEEK, at
    for _ = 1, buckets do
        local place, shadow, cost
        place, shadow, cost, at = unpack_('<HBd', calls, at)
        n = n + 1
        answer[n] = held[place + 1]
        if mode == DRAW and shadow == 0 and answer[n] < cost then
            pays = false
        end
    end
    if pays then
        paid, at = paid or {false, false}, first
        for _ = 1, buckets do
            local place, _, cost
            place, _, cost, at = unpack_('<HBd', calls, at)
            place = place + 1
            if mode == LEASE then
                cost = math.floor(math.min(cost, held[place]))
            end
            if cost > 0 and held[place] >= cost then
                held[place] = held[place] - cost
                paid[place] = true
            end
        end
    end
end

-- Who is refused writes nothing: asking again and again does not put off the time when a bucket can pay.
if paid then
    for i = 1, #keys do
        if paid[i] then
            local fills, burst = unpack_('<dd', rates, 16 * i - 15)
            local full = LONGEST
            if fills > 0 then
                full = math.min(math.ceil((burst - held[i]) / fills * 1000) + MARGIN, LONGEST)
            end
            call('SET', keys[i], pack('<dd', held[i], now), 'PX', full)
        end
    end
end

return pack('<' .. string.rep('d', n), unpack(answer, 1, n))
