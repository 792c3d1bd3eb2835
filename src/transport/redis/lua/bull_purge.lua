-- What waits is deleted, delayed jobs too. What is active, completed or failed stays. KEYS[1]: as everywhere.
-- Reply how many
local count = 0
local function empty(name, ids)
    for _, id in ipairs(ids) do
        delete_job(base .. id)
    end
    count = count + #ids
    call('DEL', base .. name)
end
empty('wait', call('LRANGE', base .. 'wait', 0, -1))
empty('paused', call('LRANGE', base .. 'paused', 0, -1))
empty('prioritized', call('ZRANGE', base .. 'prioritized', 0, -1))
empty('delayed', call('ZRANGE', base .. 'delayed', 0, -1))
call('DEL', base .. 'pc')
return count
