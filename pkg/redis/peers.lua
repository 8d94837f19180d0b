-- One replica says that it is there; the answer is how many are.
--
-- KEYS[1]  the replicas, scored by when they were last heard of, in microseconds
-- ARGV[1]  who speaks    ARGV[2]  how long a replica counts, in ms    ARGV[3]  1 if it says goodbye

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

if ARGV[3] == '1' then
    redis.call('ZREM', KEYS[1], ARGV[1])
else
    redis.call('ZADD', KEYS[1], string.format('%d', now), ARGV[1])
end
-- From the future is who spoke before the clock was set back: it will speak again.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now - ARGV[2] * 1000))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('%d', now + ARGV[2] * 1000), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
