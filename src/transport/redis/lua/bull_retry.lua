-- A job that failed waits again, its attempts and stalls counted anew. KEYS[1]: the queue's keys begin with it.
-- ARGV  the job's id
-- Reply 1: done, 0: it is not there any more
local id = ARGV[1]
local job = base .. id
if call('EXISTS', job) == 0 or call('ZREM', base .. 'failed', id) == 0 then
    return 0
end
call('HDEL', job, 'finishedOn', 'processedOn', 'failedReason', 'atm', 'ats', 'stc', 'defa')
local state = state_of(base)
call(decode(call('HGET', job, 'opts')).lifo and 'RPUSH' or 'LPUSH', state.list, id)
wake(base, state)
local parent = call('HGET', job, 'parentKey')
if parent and call('EXISTS', parent) == 1 and (call('ZREM', parent .. ':unsuccessful', job) == 1
    or call('HDEL', parent .. ':failed', job) == 1) then
    call('SADD', parent .. ':dependencies', job)
end
emit_trimmed(base, 'waiting', 'jobId', id, 'prev', 'failed')
return 1
