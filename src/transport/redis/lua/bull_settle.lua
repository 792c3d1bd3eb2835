-- Active jobs are settled, each only while its lock is ours. KEYS[1]: the queue's keys begin with it.
-- ARGV  lock in ms, then entries, each of a verb, the job's id, the token and:
--       a value (complete, the return value as JSON) | r ms (give back) | b (give back at once) | e (extend the lock)
--       | n reason trace ms random (fail, and retry as the job's options say; ms: -1, or a delay instead of its backoff;
--       random: from 0 to 1) | x reason trace (fail for good)
-- Reply {now in ms, per entry 1: done, 0: no longer ours, or the error's text}
local locks, parents = {}, false

local function complete(id, stored, value)
    local job, opts = base .. id, {}
    if parents and call('SCARD', job .. ':dependencies') > 0 then
        return 'ERR the job has children that are not finished'
    elseif parents and call('ZCARD', job .. ':unsuccessful') > 0 then
        return 'ERR the job has children that failed'
    end
    if string.find(stored[1], '"removeOnComplete"', 1, true) then
        opts = decode(stored[1])
    end
    return finish(id, opts, stored, true, 'returnvalue', value) and 1 or 0
end

local function fail(id, stored, opts, reason, trace)
    note_failure(base .. id, opts, reason, trace)
    return finish(id, opts, stored, false, 'failedReason', reason) and 1 or 0
end

local function delay_job(id, ms)
    call('HSET', base .. id, 'delay', ms)
    local due = put_off(base, id, ms)
    emit_trimmed(base, 'delayed', 'jobId', id, 'delay', due)
    wake_when_due(base)
end

-- Without an attempt of its own: in front of what waits, or of its priority. Several that are given back in the order in
-- which they were taken stand there in that order again: their ids are pushed at the end, last ones first. What comes last
-- ones first already (b) is pushed at once.
local returned = {}

local function give_back(id, ms, at_once)
    if call('LREM', base .. 'active', -1, id) == 0 then
        return 0
    end
    if ms > 0 then
        delay_job(id, ms)
        return 1
    end
    local state, priority = state_of(base), priority_of(base .. id)
    if priority > 0 then
        call('ZADD', base .. 'prioritized', priority * 4294967296, id)
    elseif at_once then
        call('RPUSH', state.list, id)
    else
        returned[#returned + 1] = id
    end
    wake(base, state)
    emit_trimmed(base, 'waiting', 'jobId', id, 'prev', 'active')
    return 1
end

local function push_returned()
    local list = #returned > 0 and state_of(base).list
    for at = #returned, 1, -1 do
        call('RPUSH', list, returned[at])
    end
end

-- The job's own backoff after its `made`th failure, in ms; nil and a reason: it is to fail.
local function backoff(opts, made, random)
    local how = opts.backoff
    if type(how) == 'number' then
        how = {type = 'fixed', delay = how}
    elseif type(how) ~= 'table' then
        return 0
    end
    local delay, jitter = tonumber(how.delay) or 0, tonumber(how.jitter) or 0
    if how.type == 'exponential' then
        delay = math.floor(2 ^ (made - 1) * delay + 0.5)
    elseif how.type ~= 'fixed' then
        return nil, 'Unknown backoff strategy ' .. tostring(how.type)
    end
    if jitter > 0 then
        delay = math.floor(random * delay * jitter + delay * (1 - jitter))
    end
    return delay
end

local function retry(id, stored, reason, trace, ms, random)
    local job, opts = base .. id, decode(stored[1])
    local made = made_of(stored)
    if made >= (tonumber(opts.attempts) or 0) then
        return fail(id, stored, opts, reason, trace)
    end
    if ms < 0 then
        local delay, why = backoff(opts, made, random)
        if not delay then
            return fail(id, stored, opts, why, trace)
        end
        ms = delay
    end
    note_failure(job, opts, reason, trace)
    if call('LREM', base .. 'active', '-1', id) == 0 then
        return 0
    end
    call('HSET', job, 'atm', made)
    if ms > 0 then
        delay_job(id, ms)
        return 1
    end
    local state = state_of(base)
    put_in_line(base, state, id, priority_of(job), opts.lifo and 'RPUSH' or 'LPUSH')
    wake(base, state)
    emit_trimmed(base, 'waiting', 'jobId', id, 'prev', 'active')
    return 1
end

local function extend(id, token)
    call('SET', base .. id .. ':lock', token, 'PX', ARGV[1])
    call('SREM', base .. 'stalled', id)
    return 1
end

local arguments = {a = 1, r = 1, b = 0, e = 0, n = 4, x = 2}

-- All locks are looked at in one step, and whether any of the jobs has children, which few have.
local function look()
    local keys, children, at = {}, {}, 2
    while at <= #ARGV do
        local job = base .. ARGV[at + 1]
        keys[#keys + 1] = job .. ':lock'
        children[#children + 1] = job .. ':dependencies'
        children[#children + 1] = job .. ':unsuccessful'
        at = at + 3 + arguments[ARGV[at]]
    end
    for n, token in ipairs(call('MGET', unpack(keys))) do
        locks[keys[n]] = token
    end
    parents = call('EXISTS', unpack(children)) > 0
end

local function settle(at, stored)
    local verb, id = ARGV[at], ARGV[at + 1]
    local first, second, third, fourth = ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]
    if verb == 'a' then
        return complete(id, stored, first)
    elseif verb == 'n' then
        return retry(id, stored, first, second, tonumber(third), tonumber(fourth))
    elseif verb == 'x' then
        return fail(id, stored, decode(stored[1]), first, second)
    elseif verb == 'e' then
        return extend(id, ARGV[at + 2])
    end
    return give_back(id, verb == 'r' and tonumber(first) or 0, verb == 'b')
end

-- Without memory the first write of a script fails, if it is one that needs some: then this entry has changed nothing, and
-- the others are not to suffer for it.
local function try(at, stored)
    local done, result = pcall(settle, at, stored)
    if done then
        return result
    end
    return type(result) == 'table' and result.err or tostring(result)
end

local results = {now}
local at = 2
look()
while at <= #ARGV do
    local verb, id, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local lock, result = base .. id .. ':lock', 0
    local stored = locks[lock] == token and call('HMGET', base .. id, unpack(FIELDS))
    if stored and stored[1] then
        result = try(at, stored)
        if result == 1 and verb ~= 'e' then
            unlock(id)
            locks[lock] = ''
        end
    end
    results[#results + 1] = result
    at = at + 3 + arguments[verb]
end
push_returned()
leave()
return results
