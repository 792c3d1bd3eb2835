-- What the scripts of BullMQ's layout share; the build puts it in front of each of them. Contract 7.3.
-- KEYS[1] is what the keys of a queue begin with ("bull:orders:"); that of a parent's queue comes from the job itself.
-- In front of what each script's head tells of ARGV stands how many events are kept where the queue does not say.
local base = KEYS[1]
local call = redis.call
local usual_length = table.remove(ARGV, 1)
local clock = call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
-- As text: a number would be printed for each command that it is handed to.
local now_text = string.format('%.0f', now)

local function emit(queue, ...)
    call('XADD', queue .. 'events', '*', 'event', ...)
end

-- How long the stream of events may get; whoever needs it first sets it.
local lengths = {}
local function events_max(queue)
    if not lengths[queue] then
        local length = call('HGET', queue .. 'meta', 'opts.maxLenEvents')
        if not length then
            length = usual_length
            call('HSET', queue .. 'meta', 'opts.maxLenEvents', length)
        end
        lengths[queue] = length
    end
    return lengths[queue]
end

local function emit_trimmed(queue, ...)
    call('XADD', queue .. 'events', 'MAXLEN', '~', events_max(queue), '*', 'event', ...)
end

local function is_newer(version)
    return version and string.find(version, '^bullmq:[6-9]') ~= nil
end

-- Where jobs wait, and whether any may be taken now: not while the queue is paused or as many are active as it allows.
-- Version 5 moves what waits in a paused queue to a list of its own, version 6 leaves it.
local function state_of(queue)
    local meta = call('HMGET', queue .. 'meta', 'paused', 'concurrency', 'max', 'duration', 'version')
    local state = {list = queue .. 'wait', halted = false, max = tonumber(meta[3]), duration = tonumber(meta[4])}
    if meta[1] then
        state.halted = true
        state.list = is_newer(meta[5]) and state.list or queue .. 'paused'
    elseif meta[2] then
        state.concurrency, state.active = tonumber(meta[2]), call('LLEN', queue .. 'active')
        state.halted = state.active >= state.concurrency
    end
    return state
end

-- Idle workers block on the marker: "0" says that there is a job, "1" when the next delayed one is due.
local function wake(queue, state)
    if not state.halted then
        call('ZADD', queue .. 'marker', '0', '0')
    end
end

local function next_due(queue)
    local first = call('ZRANGE', queue .. 'delayed', 0, 0, 'WITHSCORES')[2]
    return first and tonumber(first) / 4096
end

local function wake_when_due(queue)
    local due = next_due(queue)
    if due then
        call('ZADD', queue .. 'marker', due, '1')
    end
end

local function put_in_line(queue, state, id, priority, push)
    if priority > 0 then
        local turn = call('INCR', queue .. 'pc') % 4294967296
        call('ZADD', queue .. 'prioritized', priority * 4294967296 + turn, id)
    else
        call(push, state.list, id)
    end
end

-- Delayed jobs of one millisecond keep their order by the twelve bits below it.
local function put_off(queue, id, delay)
    local due = now + delay
    local first, last = due * 4096, due * 4096 + 4095
    local latest = call('ZREVRANGEBYSCORE', queue .. 'delayed', last, first, 'WITHSCORES', 'LIMIT', 0, 1)[2]
    local score = latest and math.min(tonumber(latest) + 1, last) or first
    call('ZADD', queue .. 'delayed', score, id)
    return due
end

local function priority_of(job)
    return tonumber(call('HGET', job, 'priority') or 0) or 0
end

local function delete_job(job)
    call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
end

local function decode(text)
    local ok, value = pcall(cjson.decode, text or '')
    return ok and type(value) == 'table' and value or {}
end

-- ---- parents --------------------------------------------------------------------------------------------------------

local function parent_of(stored, key)
    if not stored and not key then
        return nil
    end
    local parent = decode(stored)
    if type(parent.id) == 'string' and type(parent.queueKey) == 'string' then
        return {key = parent.queueKey .. ':' .. parent.id, id = parent.id, queue = parent.queueKey .. ':', flags = parent}
    end
    local queue, id = string.match(key or '', '^(.*:)([^:]+)$')
    return queue and {key = key, id = id, queue = queue, flags = {}}
end

local function parent_goes_on(parent)
    local state = state_of(parent.queue)
    local stored = call('HMGET', parent.key, 'priority', 'delay')
    local priority, delay = tonumber(stored[1] or 0) or 0, tonumber(stored[2] or 0) or 0
    if delay > 0 then
        call('ZADD', parent.queue .. 'delayed', (now + delay) * 4096, parent.id)
        emit(parent.queue, 'delayed', 'jobId', parent.id, 'delay', now + delay)
        wake_when_due(parent.queue)
        return
    end
    put_in_line(parent.queue, state, parent.id, priority, 'RPUSH')
    wake(parent.queue, state)
    emit(parent.queue, 'waiting', 'jobId', parent.id, 'prev', 'waiting-children')
end

local function parent_may_go_on(parent)
    if call('EXISTS', parent.key) == 1 and call('ZREM', parent.queue .. 'waiting-children', parent.id) == 1 then
        parent_goes_on(parent)
    end
end

local function parent_fails(parent, job)
    local reason = 'child ' .. job .. ' failed'
    if call('EXISTS', parent.key) == 0 then
        return
    end
    local waits = call('ZREM', parent.queue .. 'waiting-children', parent.id) == 1
    if not waits and call('ZREM', parent.queue .. 'delayed', parent.id) == 1 then
        call('HSET', parent.key, 'delay', 0)
        waits = true
    end
    if waits then
        call('HSET', parent.key, 'defa', reason)
        parent_goes_on(parent)
    elseif not call('ZSCORE', parent.queue .. 'failed', parent.id) then
        call('HSET', parent.key, 'defa', reason)
    end
end

-- A finished child is no longer waited for, in the way that its flags ask for.
local function tell_parent(job, parent, completed, value)
    if not parent then
        return
    end
    local waited_for, flags = parent.key .. ':dependencies', parent.flags
    if not completed and not (flags.fpof or flags.cpof or flags.idof or flags.rdof) then
        return
    end
    if call('SREM', waited_for, job) == 0 then
        return
    end
    if completed then
        call('HSET', parent.key .. ':processed', job, value)
    elseif flags.fpof then
        call('ZADD', parent.key .. ':unsuccessful', now, job)
        parent_fails(parent, job)
        return
    elseif flags.cpof or flags.idof then
        call('HSET', parent.key .. ':failed', job, value)
    end
    if flags.cpof and not completed or call('SCARD', waited_for) == 0 then
        parent_may_go_on(parent)
    end
end

-- ---- the end of a job -----------------------------------------------------------------------------------------------

-- removeOnComplete and removeOnFail: how many are kept (-1: all), for how many seconds, and how many go at a time.
local function kept(option)
    if option == true then
        return 0
    elseif type(option) == 'number' then
        return option
    elseif type(option) == 'table' then
        return tonumber(option.count), tonumber(option.age), tonumber(option.limit)
    end
    return -1
end

local function prune(set, count, age, limit)
    if age then
        local old = call('ZREVRANGEBYSCORE', set, now - age * 1000, '-inf', 'LIMIT', 0, limit or 1000)
        for _, id in ipairs(old) do
            delete_job(base .. id)
            call('ZREM', set, id)
        end
    end
    if count and count > 0 then
        for _, id in ipairs(call('ZREVRANGE', set, count, -1)) do
            delete_job(base .. id)
        end
        call('ZREMRANGEBYRANK', set, 0, -(count + 1))
    end
end

local function free_deduplication(id, deduplication)
    if not deduplication then
        return
    end
    local held = base .. 'de:' .. deduplication
    local left = call('PTTL', held)
    if left == 0 or (left == -1 and call('GET', held) == id) then
        call('DEL', held)
    end
end

-- What is known of a job that is settled: {opts, deid, parent, parentKey, atm}, in the order of these names.
local FIELDS = {'opts', 'deid', 'parent', 'parentKey', 'atm'}

local function made_of(stored)
    return (tonumber(stored[5] or 0) or 0) + 1
end

-- What is done once for all jobs of a script, by leave(): locks and places in sets.
local unlocked, ended, finished = {}, {}, false

local function unlock(id)
    unlocked[#unlocked + 1] = id
end

local function add_to(set, id)
    local members = ended[set] or {}
    members[#members + 1] = now_text
    members[#members + 1] = id
    ended[set] = members
end

local function add_ended()
    for set, members in pairs(ended) do
        call('ZADD', set, unpack(members))
    end
    ended = {}
end

-- From active to completed or failed. `field`: returnvalue or failedReason. False: it was not active.
local function finish(id, opts, stored, completed, field, value)
    local job, made = base .. id, made_of(stored)
    local set = base .. (completed and 'completed' or 'failed')
    if call('LREM', base .. 'active', '-1', id) == 0 then
        return false
    end
    if not finished then
        call('XTRIM', base .. 'events', 'MAXLEN', '~', events_max(base))
        finished = true
    end
    free_deduplication(id, stored[2])
    tell_parent(job, parent_of(stored[3], stored[4]), completed, value)
    local count, age, limit = kept(completed and opts.removeOnComplete or not completed and opts.removeOnFail)
    if count == 0 then
        delete_job(job)
    else
        add_to(set, id)
        call('HSET', job, field, value, 'finishedOn', now_text, 'atm', made)
        if not completed then
            call('HDEL', job, 'defa')
        end
        if age or (count or 0) > 0 then
            add_ended()
            prune(set, count, age, limit)
        end
    end
    call('XADD', base .. 'events', '*', 'event', completed and 'completed' or 'failed', 'jobId', id, field, value,
        'prev', 'active')
    if not completed and made >= (tonumber(opts.attempts) or 0) then
        emit(base, 'retries-exhausted', 'jobId', id, 'attemptsMade', made)
    end
    return true
end

-- The end of a script that settles.
local function leave()
    add_ended()
    if #unlocked > 0 then
        local locks = {}
        for at, id in ipairs(unlocked) do
            locks[at] = base .. id .. ':lock'
        end
        call('DEL', unpack(locks))
        call('SREM', base .. 'stalled', unpack(unlocked))
    end
    if finished and call('LLEN', base .. 'wait') == 0 and call('LLEN', base .. 'active') == 0
        and call('ZCARD', base .. 'prioritized') == 0 then
        emit(base, 'drained')
    end
end

-- What went wrong, as a handler in Node leaves it: the reason, and a list of traces.
local function note_failure(job, opts, reason, trace)
    local traces = decode(call('HGET', job, 'stacktrace'))
    local limit = tonumber(opts.stackTraceLimit)
    traces[#traces + 1] = trace
    while limit and #traces > limit do
        table.remove(traces, 1)
    end
    call('HSET', job, 'failedReason', reason, 'stacktrace', #traces == 0 and '[]' or cjson.encode(traces))
end
