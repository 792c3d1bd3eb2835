-- Contract 7.2: each entry acts only while its reserved member is there, and writes before it removes.
-- KEYS  ready, reserved, delayed, notify, then pairs of ready and notify that dead letters go to
-- ARGV  retry_after in seconds or +inf, then entries:
--       a member score | r member score job delay_ms | b member score job | t member score body delay_ms
--       | d member score body key | e member score
--       (acknowledge, release, put back in front, retry, dead letter, extend)
--       A member of the same bytes may be somebody else's by now: with a score it is ours only while it has that one.
-- Reply {now in ms, per entry 1: done, 0: no longer ours, or the error's text}
local time = redis.call('TIME')
local now = tonumber(time[1])

local function fault(reply)
    return type(reply) == 'table' and reply.err or nil
end

local function push(command, ready, notify, job)
    local text = fault(redis.pcall(command, ready, job))
    if not text then
        redis.call('RPUSH', notify, 1)
    end
    return text
end

local function delay(job, ms)
    local reply = redis.pcall('ZADD', KEYS[3], 'NX', now + math.ceil(ms / 1000), job)
    if reply == 0 then
        -- One of the same bytes waits already, and a set holds only one: rather too early than lost.
        return push('RPUSH', KEYS[1], KEYS[4], job)
    end
    return fault(reply)
end

local results = {now * 1000 + math.floor(tonumber(time[2]) / 1000)}
local at = 2
while at <= #ARGV do
    local verb, member = ARGV[at], ARGV[at + 1]
    local found, score = redis.call('ZSCORE', KEYS[2], member), ARGV[at + 2]
    local ours = found and (score == '' or tonumber(found) == tonumber(score))
    local text, used = nil, 3
    if verb == 'r' then
        used = 5
        if ours and tonumber(ARGV[at + 4]) <= 0 then
            text = push('RPUSH', KEYS[1], KEYS[4], ARGV[at + 3])
        elseif ours then
            text = delay(ARGV[at + 3], tonumber(ARGV[at + 4]))
        end
    elseif verb == 'b' then
        used = 4
        text = ours and push('LPUSH', KEYS[1], KEYS[4], ARGV[at + 3])
    elseif verb == 't' then
        used = 5
        text = ours and delay(ARGV[at + 3], tonumber(ARGV[at + 4]))
    elseif verb == 'd' then
        used = 5
        local key = tonumber(ARGV[at + 4])
        text = ours and push('RPUSH', KEYS[key], KEYS[key + 1], ARGV[at + 3])
    elseif verb == 'e' and ours then
        local later = ARGV[1] == '+inf' and '+inf' or now + tonumber(ARGV[1])
        text = fault(redis.pcall('ZADD', KEYS[2], later, member))
    end
    if not ours then
        results[#results + 1] = 0
    elseif text then
        results[#results + 1] = text
    else
        if verb ~= 'e' then
            redis.call('ZREM', KEYS[2], member)
        end
        results[#results + 1] = 1
    end
    at = at + used
end
return results
