-- Jobs are added. KEYS[1]: the queue's keys begin with it.
-- ARGV  jobs of nine: name, data, opts as JSON, delay in ms, priority, 1: last in first out, id ("": the next number),
--       deduplication id ("": none) and its time in ms (0: until the job has ended)
-- Reply {id...}: that of the job there is already, where it is a duplicate
local state = state_of(base)
local longest = events_max(base)
-- Every job takes a number, also one that brings an id of its own.
local number = call('INCRBY', base .. 'id', #ARGV / 9) - #ARGV / 9
local ready = false

local function duplicate_of(id, deduplication, ttl)
    local held = base .. 'de:' .. deduplication
    local taken
    if ttl > 0 then
        taken = not call('SET', held, id, 'PX', ttl, 'NX')
    else
        taken = not call('SET', held, id, 'NX')
    end
    local first = taken and call('GET', held)
    if first then
        if not is_newer(call('HGET', base .. 'meta', 'version')) then
            emit_trimmed(base, 'debounced', 'jobId', first, 'debounceId', deduplication)
        end
        emit_trimmed(base, 'deduplicated', 'jobId', first, 'deduplicationId', deduplication, 'deduplicatedJobId', id)
    end
    return first
end

local function add(name, data, opts, delay, priority, lifo, own, deduplication, ttl)
    number = number + 1
    local id = own == '' and string.format('%.0f', number) or own
    local job = base .. id
    if own ~= '' and call('EXISTS', job) == 1 then
        emit_trimmed(base, 'duplicated', 'jobId', id)
        return id
    end
    local first = deduplication ~= '' and duplicate_of(id, deduplication, tonumber(ttl))
    if first then
        return first
    end
    call('HSET', job, 'name', name, 'data', data, 'opts', opts, 'timestamp', now_text, 'delay', delay, 'priority', priority)
    if deduplication ~= '' then
        call('HSET', job, 'deid', deduplication)
    end
    call('XADD', base .. 'events', '*', 'event', 'added', 'jobId', id, 'name', name)
    if delay ~= '0' then
        local due = put_off(base, id, tonumber(delay))
        emit_trimmed(base, 'delayed', 'jobId', id, 'delay', due)
        wake_when_due(base)
        return id
    end
    put_in_line(base, state, id, tonumber(priority), lifo == '1' and 'RPUSH' or 'LPUSH')
    call('XADD', base .. 'events', 'MAXLEN', '~', longest, '*', 'event', 'waiting', 'jobId', id)
    ready = true
    return id
end

local ids = {}
for at = 1, #ARGV, 9 do
    ids[#ids + 1] = add(unpack(ARGV, at, at + 8))
end
if ready then
    wake(base, state)
end
return ids
