-- Jobs are added. KEYS[1]: the queue's keys begin with it.
-- ARGV  jobs of nine: name, data, opts as JSON, delay in ms, priority, 1: last in first out, id ("": the next number),
--       deduplication id ("": none) and its time in ms (0: until the job has ended)
-- Reply {id...}: that of the job there is already, where it is a duplicate
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
    local id = tostring(call('INCR', base .. 'id'))
    events_max(base)
    if own ~= '' then
        id = own
        if call('EXISTS', base .. id) == 1 then
            emit_trimmed(base, 'duplicated', 'jobId', id)
            return id
        end
    end
    if deduplication ~= '' then
        local first = duplicate_of(id, deduplication, ttl)
        if first then
            return first
        end
    end
    local job = base .. id
    call('HSET', job, 'name', name, 'data', data, 'opts', opts, 'timestamp', now, 'delay', delay, 'priority', priority)
    if deduplication ~= '' then
        call('HSET', job, 'deid', deduplication)
    end
    emit(base, 'added', 'jobId', id, 'name', name)
    if delay > 0 then
        local due = put_off(base, id, delay)
        emit_trimmed(base, 'delayed', 'jobId', id, 'delay', due)
        wake_when_due(base)
        return id
    end
    put_in_line(base, id, priority, lifo and 'RPUSH' or 'LPUSH')
    wake(base, state_of(base))
    emit_trimmed(base, 'waiting', 'jobId', id)
    return id
end

local ids = {}
for at = 1, #ARGV, 9 do
    ids[#ids + 1] = add(ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]),
        ARGV[at + 5] == '1', ARGV[at + 6], ARGV[at + 7], tonumber(ARGV[at + 8]))
end
return ids
