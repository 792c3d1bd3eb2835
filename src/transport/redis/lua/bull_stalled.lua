-- Jobs whose worker fell silent go back, by one worker at a time. KEYS[1]: the queue's keys begin with it.
-- ARGV  how long no other worker looks, in ms; how often a job may stall
-- Reply how many went back
if call('EXISTS', base .. 'stalled-check') == 1 then
    return 0
end
call('SET', base .. 'stalled-check', now, 'PX', ARGV[1])
call('XTRIM', base .. 'events', 'MAXLEN', '~', events_max(base))

local function scheduled(job)
    local scheduler = call('HGET', job, 'rjk')
    return scheduler and (call('EXISTS', base .. 'repeat:' .. scheduler) == 1 or call('ZSCORE', base .. 'repeat', scheduler))
end

local count = 0
for _, id in ipairs(call('SMEMBERS', base .. 'stalled')) do
    local job = base .. id
    if call('EXISTS', job .. ':lock') == 0 and call('LREM', base .. 'active', 1, id) > 0 then
        if call('HINCRBY', job, 'stc', 1) > tonumber(ARGV[2]) and not scheduled(job) then
            call('HSET', job, 'defa', 'job stalled more than allowable limit')
        end
        local state = state_of(base)
        call('RPUSH', state.list, id)
        wake(base, state)
        emit(base, 'waiting', 'jobId', id, 'prev', 'active')
        emit(base, 'stalled', 'jobId', id)
        count = count + 1
    end
end
call('DEL', base .. 'stalled')

-- Those that are active now and without a lock the next time have stalled.
local active = call('LRANGE', base .. 'active', 0, -1)
for from = 1, #active, 5000 do
    call('SADD', base .. 'stalled', unpack(active, from, math.min(from + 4999, #active)))
end
return count
