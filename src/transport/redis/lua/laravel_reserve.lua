-- Contract 7.2, Reserve: what is due goes back to ready, then up to ARGV[2] jobs are reserved.
-- KEYS  ready, reserved, delayed, notify
-- ARGV  retry_after in seconds or +inf, how many, bytes at most, members to migrate at most
-- Reply {now in ms, jobs left, earliest score in ms or -1, reserved with an end, delayed, 0, job, how, job, how...}; how the
--       reserved member is made: 0: it is the job, 1: with its last digits raised by one, else the member itself
local time = redis.call('TIME')
local now = tonumber(time[1])

local function migrate(from)
    local due = redis.call('ZRANGEBYSCORE', from, '-inf', now, 'LIMIT', 0, ARGV[4])
    for _, job in ipairs(due) do
        redis.call('RPUSH', KEYS[1], job)
        redis.call('RPUSH', KEYS[4], 1)
    end
    if #due > 0 then
        redis.call('ZREMRANGEBYRANK', from, 0, #due - 1)
    end
end

-- The reserved member of a job. Digits at the canonical end are replaced, so that a recovered reservation keeps its
-- bytes; all else goes through cjson, and what cjson cannot read or write is reserved as it is.
local function member_of(job)
    local ok, decoded = pcall(cjson.decode, job)
    if not ok or type(decoded) ~= 'table' or type(decoded['attempts']) ~= 'number' then
        return job, 0
    end
    local digits = string.match(string.sub(job, -32), ',"attempts":(%d+)}$')
    if digits and #digits <= 15 then
        local count = string.format('%.0f', tonumber(digits) + 1)
        return string.sub(job, 1, #job - #digits - 1) .. count .. '}', 1
    end
    decoded['attempts'] = decoded['attempts'] + 1
    local written, text = pcall(cjson.encode, decoded)
    if not written then
        return job, 0
    end
    return text, text
end

migrate(KEYS[3])
if ARGV[1] ~= '+inf' then
    migrate(KEYS[2])
end

-- As text: a number would be printed for each command that it is handed to.
local score = ARGV[1]
if score ~= '+inf' then
    score = string.format('%.0f', now + tonumber(score))
end
local got, bytes, again = {}, 0, 0
local waiting = redis.call('LLEN', KEYS[1])
while #got < 2 * tonumber(ARGV[2]) and bytes < tonumber(ARGV[3]) and waiting > 0 do
    local job = redis.call('LPOP', KEYS[1])
    if not job then
        break
    end
    waiting = waiting - 1
    local member, how = member_of(job)
    -- A second job of the same bytes has to wait for the first: a set holds only one of them, so it would be lost.
    if redis.call('ZADD', KEYS[2], 'NX', score, member) == 0 then
        redis.call('RPUSH', KEYS[1], job)
        again = again + 1
        if again == 100 then
            break
        end
    else
        redis.call('LPOP', KEYS[4])
        got[#got + 1] = job
        got[#got + 1] = how
        bytes = bytes + #job
    end
end

local earliest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
if ARGV[1] ~= '+inf' then
    local other = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
    if other and (not earliest or tonumber(other) < tonumber(earliest)) then
        earliest = other
    end
end
earliest = tonumber(earliest or -1)
if earliest < 0 or earliest > 1e12 then
    earliest = -1
else
    earliest = math.floor(earliest) * 1000
end
return {
    now * 1000 + math.floor(tonumber(time[2]) / 1000), redis.call('LLEN', KEYS[1]), earliest,
    redis.call('ZCOUNT', KEYS[2], '-inf', '(inf'), redis.call('ZCARD', KEYS[3]), 0, 0, unpack(got),
}
