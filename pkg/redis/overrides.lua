-- Small texts by name that replicas share, in one hash. A revision tells them that something changed.
--
-- KEYS[1]  the hash: fields epoch, rev, soonest, and for each name id:<name>, text:<name>, ends:<name>
-- ARGV[1]  what to do

local key, what = KEYS[1], ARGV[1]

local function now()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function changed()
    redis.call('HINCRBY', key, 'rev', 1)
end

local function drop(name)
    redis.call('HDEL', key, 'id:' .. name, 'text:' .. name, 'ends:' .. name)
end

-- names calls f with each name and its id.
local function names(f)
    local all = redis.call('HKEYS', key)
    for _, field in ipairs(all) do
        if string.sub(field, 1, 3) == 'id:' then
            f(string.sub(field, 4), redis.call('HGET', key, field))
        end
    end
end

-- expire drops what has ended, and notes when the next one does.
local function expire()
    local soonest = tonumber(redis.call('HGET', key, 'soonest') or '0')
    if soonest == 0 or soonest > now() then
        return
    end
    local next, time = 0, now()
    names(function(name)
        local ends = tonumber(redis.call('HGET', key, 'ends:' .. name) or '0')
        if ends > 0 and ends <= time then
            drop(name)
        elseif ends > 0 and (next == 0 or ends < next) then
            next = ends
        end
    end)
    redis.call('HSET', key, 'soonest', string.format('%d', next))
    changed()
end

-- poll ARGV[2] the revision that is known: the revision, and where it is another one each name with its id.
if what == 'poll' then
    if redis.call('EXISTS', key) == 0 then
        return {''}
    end
    expire()
    local rev = redis.call('HGET', key, 'epoch') .. '.' .. redis.call('HGET', key, 'rev')
    local answer = {rev}
    if rev ~= ARGV[2] then
        names(function(name, id)
            answer[#answer + 1] = name
            answer[#answer + 1] = id
        end)
    end
    return answer
end

local name, id = ARGV[2], ARGV[3]
local has = redis.call('HGET', key, 'id:' .. name) or ''

-- get ARGV[2] the name: its id and text, or nothing.
if what == 'get' then
    if has == '' then
        return {}
    end
    return {has, redis.call('HGET', key, 'text:' .. name)}
end

-- put ARGV[2..] name, id, text, "any" or the id that is to be replaced ("" for none), how many names there may be, and
-- an epoch for a hash that is new.
if what == 'put' then
    local text, over, most, epoch = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
    if over ~= 'any' and over ~= has then
        return {'other'}
    end
    if has == '' then
        local count = 0
        names(function() count = count + 1 end)
        if count >= most then
            return {'full'}
        end
    end
    redis.call('HSETNX', key, 'epoch', epoch)
    redis.call('HDEL', key, 'ends:' .. name)
    redis.call('HSET', key, 'id:' .. name, id, 'text:' .. name, text)
    changed()
    return {'done'}
end

-- remove ARGV[2] the name, ARGV[3] "any" or its id.
if what == 'remove' then
    if has == '' then
        return {'done'}
    end
    if id ~= 'any' and id ~= has then
        return {'other'}
    end
    drop(name)
    changed()
    return {'done'}
end

-- end ARGV[2..] name, id, after how many ms: it goes then, unless it is put again.
if what == 'end' then
    if has == id and not redis.call('HGET', key, 'ends:' .. name) then
        local ends = now() + tonumber(ARGV[4])
        redis.call('HSET', key, 'ends:' .. name, string.format('%d', ends))
        local soonest = tonumber(redis.call('HGET', key, 'soonest') or '0')
        if soonest == 0 or ends < soonest then
            redis.call('HSET', key, 'soonest', string.format('%d', ends))
        end
    end
    return {'done'}
end

return redis.error_reply('unknown: ' .. what)
