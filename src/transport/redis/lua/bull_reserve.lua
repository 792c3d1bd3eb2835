-- Jobs are taken: what is due is promoted, then up to ARGV[1] become active. KEYS[1]: the queue's keys begin with it.
-- ARGV  how many, bytes at most, lock in ms, 24 hex digits that begin the locks' tokens
-- Reply {now in ms, jobs left that could be taken, when the next one is due in ms or -1, active, delayed, 0, 0, data,
--       {id, attempts made, name, telemetry metadata or ""}, data...}
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

local function next_job()
    local id = call('RPOPLPUSH', base .. 'wait', base .. 'active')
    if id and string.sub(id, 1, 2) == '0:' then -- a marker of old versions
        call('LREM', base .. 'active', 1, id)
        return next_job()
    end
    if id then
        return id
    end
    local first = call('ZPOPMIN', base .. 'prioritized')
    if #first == 0 then
        call('DEL', base .. 'pc')
        return nil
    end
    call('LPUSH', base .. 'active', first[1])
    return first[1]
end

local function activate(id, state, token)
    local job = base .. id
    count_for_limit(state)
    call('SET', job .. ':lock', token, 'PX', ARGV[3])
    call('XADD', base .. 'events', '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
    call('HSET', job, 'processedOn', now_text)
    call('HINCRBY', job, 'ats', '1')
end

-- It stalled too often, or a child of it failed: it fails without being handled.
local function fail_deferred(id, opts, links, reason)
    local job = base .. id
    call('DEL', job .. ':lock')
    call('SREM', base .. 'stalled', id)
    note_failure(job, opts, reason, 'UnrecoverableError: ' .. reason)
    finish(id, opts, links, false, 'failedReason', reason)
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
    local id = next_job()
    if not id then
        break
    end
    local stored = call('HMGET', base .. id, 'data', 'opts', 'atm', 'name', 'defa', 'deid', 'parent', 'parentKey')
    if not stored[1] then -- its hash is gone: there is nothing to do
        call('LREM', base .. 'active', 1, id)
    else
        serial = serial + 1
        activate(id, state, string.format('%s%08x', ARGV[4], serial))
        if stored[5] then
            local links = {deid = stored[6], parent = stored[7], key = stored[8]}
            fail_deferred(id, decode(stored[2]), links, stored[5])
        else
            got[#got + 1] = stored[1]
            got[#got + 1] = {id, tonumber(stored[3] or 0), stored[4] or '', metadata(stored[2])}
            bytes = bytes + #stored[1]
        end
    end
    pause = limited(state)
end
if serial > 0 then
    -- There may be more: the next idle worker is to look as well.
    wake(base, state)
end
tell_drained()

local due = next_due(base)
local left = 0
if pause > 0 then
    due = math.min(due or now + pause, now + pause)
elseif not state.halted and (not state.concurrency or serial < most) then
    left = call('LLEN', base .. 'wait') + call('ZCARD', base .. 'prioritized')
end
return {now, left, due and math.ceil(due) or -1, call('LLEN', base .. 'active'), call('ZCARD', base .. 'delayed'), 0, 0,
    unpack(got)}
