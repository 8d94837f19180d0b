-- Where a sequence is: one text under one key.
--
-- KEYS[1]  the sequence
-- ARGV     what to do, how long it is kept from now in ms, and texts
-- The answer is what is there afterwards; an empty text for nothing.

local key, what, ttl = KEYS[1], ARGV[1], ARGV[2]
local there = redis.call('MGET', key)[1] or ''

local function put(text)
    redis.call('SET', key, text, 'PX', ttl)
    return text
end

-- ask: keep what is there.
-- claim ARGV[3] a text: put it where nothing is.
if what == 'ask' or what == 'claim' and there ~= '' then
    if there ~= '' then
        redis.call('PEXPIRE', key, ttl)
    end
    return there
end

-- put ARGV[3] a text, whatever is there.
if what == 'put' or what == 'claim' then
    return put(ARGV[3])
end

-- swap ARGV[3] a text, ARGV[4] another: put the second where the first is.
if what == 'swap' then
    if there == ARGV[3] then
        return put(ARGV[4])
    end
    return there
end

return redis.error_reply('unknown: ' .. what)
