-- Contract 7.1, Reserve: first what lapsed goes back, then up to ARGV[2] elements are reserved.
-- KEYS  queue, processing, deadlines, lapses
-- ARGV  retry_after in seconds or +inf, how many, bytes at most, 24 hex digits that begin the tokens, members to sweep
--       at most, seconds that lapse counts are kept, 1: count what is parked when nothing is left
-- Reply {now in ms, elements left, earliest deadline or -1, members, parked or -1, element, lapses, element, lapses...}
local time = redis.call('TIME')
local now = tonumber(time[1])
local lapsed = false

local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[5])
for _, member in ipairs(due) do
    if #member >= 34 and string.byte(member, 33) == 58 then
        local raw = string.sub(member, 34)
        -- Written before anything is removed: without memory it fails here, and nothing has changed.
        redis.call('RPUSH', KEYS[1], raw)
        if redis.call('LREM', KEYS[2], 1, raw) == 1 then
            if string.sub(member, 1, 8) ~= '00000000' then
                redis.call('HINCRBY', KEYS[4], redis.sha1hex(raw), 1)
                lapsed = true
            end
        else
            redis.call('RPOP', KEYS[1])
        end
    end
    redis.call('ZREM', KEYS[3], member)
end
if lapsed then
    redis.call('EXPIRE', KEYS[4], ARGV[6])
end

local counted = redis.call('EXISTS', KEYS[4]) == 1
local deadline = ARGV[1]
if deadline ~= '+inf' then
    deadline = now + tonumber(deadline)
end
local got, bytes = {}, 0
for i = 1, tonumber(ARGV[2]) do
    if bytes >= tonumber(ARGV[3]) then
        break
    end
    local raw = redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
    if not raw then
        break
    end
    redis.call('ZADD', KEYS[3], deadline, string.format('%s%08x:', ARGV[4], i) .. raw)
    got[#got + 1] = raw
    got[#got + 1] = counted and tonumber(redis.call('HGET', KEYS[4], redis.sha1hex(raw)) or 0) or 0
    bytes = bytes + #raw
end

local left = redis.call('LLEN', KEYS[1])
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
local earliest = -1
if first and first ~= 'inf' then
    earliest = math.floor(tonumber(first))
end
local members = redis.call('ZCARD', KEYS[3])
local parked = -1
if members == 0 then
    parked = 0
elseif ARGV[7] == '1' and left == 0 then
    parked = 0
    for _, member in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
        if string.sub(member, 1, 8) == '00000000' then
            parked = parked + 1
        end
    end
end
return {now * 1000 + math.floor(tonumber(time[2]) / 1000), left, earliest, members, parked, unpack(got)}
