-- Jobs are taken: what is due is promoted, then up to ARGV[1] become active. KEYS[1]: the queue's keys begin with it.
-- ARGV  how many, bytes at most, lock in ms, 24 hex digits that begin the locks' tokens
-- Reply {now in ms, jobs left that could be taken, when the next one is due in ms or -1, active, delayed, 0, 0, data,
--       {id, attempts made, name, telemetry metadata or "", number of its token}, data...}
local function promote(state)
    local due = call('ZRANGEBYSCORE', base .. 'delayed', 0, (now + 1) * 4096 - 1, 'LIMIT', 0, 1000)
    if #due == 0 then
        return
    end
    call('ZREM', base .. 'delayed', unpack(due))
    for _, id in ipairs(due) do
        put_in_line(base, state, id, priority_of(base .. id), 'LPUSH')
        emit(base, 'waiting', 'jobId', id, 'prev', 'delayed')
        call('HSET', base .. id, 'delay', 0)
    end
    wake(base, state)
end

-- Until when the queue's rate limit stops us, in ms from now; 0: it does not.
local function limited(state)
    if not state.max or state.max > tonumber(call('GET', base .. 'limiter') or 0) then
        return 0
    end
    local left = call('PTTL', base .. 'limiter')
    if left == 0 then
        call('DEL', base .. 'limiter')
    end
    return left > 0 and left or 0
end

local function count_for_limit(state)
    if state.max and call('INCR', base .. 'limiter') == 1 then
        call('PEXPIRE', base .. 'limiter', math.floor(math.abs(state.duration or 0)))
    end
end

-- Some jobs at once, from the tail of what waits; then one by one those with a priority. None: {}.
local function next_jobs(count)
    local ids = call('RPOP', base .. 'wait', count)
    if ids then
        call('LPUSH', base .. 'active', unpack(ids))
        return ids
    end
    local first = call('ZPOPMIN', base .. 'prioritized')
    if #first == 0 then
        call('DEL', base .. 'pc')
        return {}
    end
    call('LPUSH', base .. 'active', first[1])
    return {first[1]}
end

local function activate(id, stored, state, token)
    local job = base .. id
    count_for_limit(state)
    call('SET', job .. ':lock', token, 'PX', ARGV[3])
    call('XADD', base .. 'events', '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
    call('HSET', job, 'processedOn', now_text, 'ats', (tonumber(stored[9] or 0) or 0) + 1)
end

-- It stalled too often, or a child of it failed: it fails without being handled.
local function fail_deferred(id, opts, stored, reason)
    unlock(id)
    note_failure(base .. id, opts, reason, 'UnrecoverableError: ' .. reason)
    finish(id, opts, stored, false, 'failedReason', reason)
end

local function metadata(opts)
    local text = string.find(opts or '', '"tm"', 1, true) and decode(opts).tm
    return type(text) == 'string' and text or ''
end

local got, bytes, serial = {}, 0, 0
local state = state_of(base)
promote(state)
local pause = limited(state)
local most = tonumber(ARGV[1])
if state.concurrency then
    most = math.min(most, state.concurrency - state.active)
end
while not state.halted and pause == 0 and serial < most and bytes < tonumber(ARGV[2]) do
    -- One by one where each counts for the limit of the queue.
    local ids = next_jobs(state.max and 1 or math.min(most - serial, 16))
    if #ids == 0 then
        break
    end
    for _, id in ipairs(ids) do
        local stored = call('HMGET', base .. id, 'opts', 'deid', 'parent', 'parentKey', 'atm', 'data', 'name', 'defa', 'ats')
        if not stored[6] then -- a marker of old versions, or its hash is gone: there is nothing to do
            call('LREM', base .. 'active', 1, id)
        else
            serial = serial + 1
            activate(id, stored, state, string.format('%s%08x', ARGV[4], serial))
            if stored[8] then
                fail_deferred(id, decode(stored[1]), stored, stored[8])
            else
                got[#got + 1] = stored[6]
                got[#got + 1] = {id, made_of(stored) - 1, stored[7] or '', metadata(stored[1]), serial}
                bytes = bytes + #stored[6]
            end
        end
    end
    pause = limited(state)
end
if serial > 0 then
    -- There may be more: the next idle worker is to look as well.
    wake(base, state)
end
leave()

local due = next_due(base)
local left = 0
if pause > 0 then
    due = math.min(due or now + pause, now + pause)
elseif not state.halted and (not state.concurrency or serial < most) then
    left = call('LLEN', base .. 'wait') + call('ZCARD', base .. 'prioritized')
end
return {now, left, due and math.ceil(due) or -1, call('LLEN', base .. 'active'), call('ZCARD', base .. 'delayed'), 0, 0,
    unpack(got)}
