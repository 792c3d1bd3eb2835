-- Contract 7.1, Reserve: first what lapsed goes back, then up to ARGV[2] elements are reserved.
-- KEYS  queue, processing, deadlines, lapses
-- ARGV  retry_after in seconds or +inf, how many, bytes at most, 24 hex digits that begin the tokens, members to sweep
--       at most, seconds that lapse counts are kept, when nothing is left 1: look for what is reserved, 2: for that or
--       what is parked, lapses of a message at its last chance (0: none is), 1: the consumer has others in hand
-- Reply {now in ms, elements left, earliest deadline in ms or -1, found reserved with an end or -1, found parked or -1, 1: a
--       message at its last chance waits, elements in processing, element, lapses, element, lapses...}
local time = redis.call('TIME')
local now = tonumber(time[1])
local lapsed = false

-- To take one out the list is walked, and nobody else is served meanwhile: so many elements and no more.
local steps = 200000
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[5])
for _, member in ipairs(due) do
    if steps <= 0 then
        break
    end
    if #member >= 34 and string.byte(member, 33) == 58 then
        local raw = string.sub(member, 34)
        -- Written before anything is removed: without memory it fails here, and nothing has changed.
        redis.call('RPUSH', KEYS[1], raw)
        steps = steps - (redis.call('LPOS', KEYS[2], raw, 'MAXLEN', 256) or redis.call('LLEN', KEYS[2]))
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
-- As text: a number would be printed for each command that it is handed to.
local deadline = ARGV[1]
if deadline ~= '+inf' then
    deadline = string.format('%.0f', now + tonumber(deadline))
end
local got, bytes, waits = {}, 0, 0
local last, alone = tonumber(ARGV[8]), false
for i = 1, tonumber(ARGV[2]) do
    if bytes >= tonumber(ARGV[3]) or alone then
        break
    end
    local lapses = 0
    if counted then
        local head = redis.call('LINDEX', KEYS[1], 0)
        lapses = head and tonumber(redis.call('HGET', KEYS[4], redis.sha1hex(head)) or 0) or 0
        -- Contract 3, crash loops: taken alone, so that what a killed worker had merely taken ahead is not blamed.
        alone = lapses > 0 and lapses == last
        if alone and (ARGV[9] == '1' or i > 1) then
            waits = 1
            break
        end
    end
    local raw = redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
    if not raw then
        break
    end
    redis.call('ZADD', KEYS[3], deadline, string.format('%s%08x:', ARGV[4], i) .. raw)
    got[#got + 1] = raw
    got[#got + 1] = lapses
    bytes = bytes + #raw
end

local left = redis.call('LLEN', KEYS[1])
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
local earliest = -1
if first and tonumber(first) < 1e12 then
    earliest = math.floor(tonumber(first)) * 1000
end
local reserved, parked = -1, -1
if not first then
    reserved, parked = 0, 0
elseif ARGV[7] ~= '0' and left == 0 then
    reserved, parked = 0, 0
    local from = 0
    -- Page by page, and only until what was looked for is found: many may be parked.
    repeat
        local page = redis.call('ZRANGE', KEYS[3], from, from + 99, 'WITHSCORES')
        for at = 1, #page, 2 do
            if string.sub(page[at], 1, 8) == '00000000' then
                parked = parked + 1
            elseif page[at + 1] ~= 'inf' then
                reserved = reserved + 1
            end
        end
        from = from + 100
    until #page < 200 or reserved > 0 or (parked > 0 and ARGV[7] == '2')
end
return {
    now * 1000 + math.floor(tonumber(time[2]) / 1000), left, earliest, reserved, parked, waits,
    redis.call('LLEN', KEYS[2]), unpack(got),
}
