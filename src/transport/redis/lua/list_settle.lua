-- Contract 7.1, Settle: each entry acts only while its own deadline member is there, and writes before it removes.
-- KEYS  queue, processing, deadlines, lapses, then the lists that dead letters go to
-- ARGV  8 hex digits for tokens of parked elements, retry_after in seconds or +inf, then entries, each of a verb, the
--       token, the raw element, its place in processing when it was reserved (from 1) and:
--       a (acknowledge) | r delay_ms (release) | b (put back in front) | t body delay_ms (retry) | d body key (dead
--       letter) | e (extend)
-- Reply {now in ms, per entry 1: done, 0: no longer ours, or the error's text}
local time = redis.call('TIME')
local seconds = tonumber(time[1])
local now = seconds * 1000 + math.floor(tonumber(time[2]) / 1000)
local counted = redis.call('EXISTS', KEYS[4]) == 1
local parked = 0

-- The error's text, or nil. Only the first write of a script can fail for lack of memory.
local function fault(reply)
    return type(reply) == 'table' and reply.err or nil
end

local function put(raw, delay)
    if delay <= 0 then
        return fault(redis.pcall('RPUSH', KEYS[1], raw))
    end
    local text = fault(redis.pcall('RPUSH', KEYS[2], raw))
    if not text then
        local due = now + delay
        parked = parked + 1
        local token = string.format('00000000%012x%s%04x:', due, ARGV[1], parked % 65536)
        redis.call('ZADD', KEYS[3], math.ceil(due / 1000), token .. raw)
    end
    return text
end

-- Taken out of processing, whose order means nothing; nor does it which of equal elements goes. Near an end the list is
-- walked from there, and what is settled in order stands in front. Deeper in, walking would hold up everybody: where the
-- element still stands at its place, the last one is put there instead. What others took out moved it towards the front;
-- then it is looked for from the nearer end.
local function take_out(raw, place)
    local count = redis.call('LLEN', KEYS[2])
    if place > 256 and count - place > 256 and redis.call('LINDEX', KEYS[2], place - 1) == raw then
        redis.call('LSET', KEYS[2], place - 1, redis.call('RPOP', KEYS[2]))
        return
    end
    local front = count <= 512 or place * 2 <= count or redis.call('LPOS', KEYS[2], raw, 'MAXLEN', 256)
    redis.call('LREM', KEYS[2], front and '1' or '-1', raw)
end

local results = {now}
local at = 3
while at <= #ARGV do
    local verb, raw = ARGV[at], ARGV[at + 2]
    local member = ARGV[at + 1] .. ':' .. raw
    -- An acknowledge writes nothing that could fail: its removal tells by itself whether it is ours.
    local ours = verb == 'a' and redis.call('ZREM', KEYS[3], member) == 1
        or verb ~= 'a' and redis.call('ZSCORE', KEYS[3], member)
    local text, used, over = nil, 4, true
    if verb == 'r' then
        used = 5
        text = ours and put(raw, tonumber(ARGV[at + 4]))
        over = false
    elseif verb == 'b' then
        text = ours and fault(redis.pcall('LPUSH', KEYS[1], raw))
        over = false
    elseif verb == 't' then
        used = 6
        text = ours and put(ARGV[at + 4], tonumber(ARGV[at + 5]))
    elseif verb == 'd' then
        used = 6
        text = ours and fault(redis.pcall('RPUSH', KEYS[tonumber(ARGV[at + 5])], ARGV[at + 4]))
    elseif verb == 'e' and ours then
        local score = ARGV[2] == '+inf' and '+inf' or seconds + tonumber(ARGV[2])
        text = fault(redis.pcall('ZADD', KEYS[3], score, member))
    end
    if not ours then
        results[#results + 1] = 0
    elseif text then
        results[#results + 1] = text
    else
        if verb ~= 'a' and verb ~= 'e' then
            redis.call('ZREM', KEYS[3], member)
        end
        if verb ~= 'e' then
            take_out(raw, tonumber(ARGV[at + 3]))
            if counted and over then
                redis.call('HDEL', KEYS[4], redis.sha1hex(raw))
            end
        end
        results[#results + 1] = 1
    end
    at = at + used
end
return results
