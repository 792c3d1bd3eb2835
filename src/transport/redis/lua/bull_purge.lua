-- What waits is deleted, delayed jobs too, some at a time. What is active, completed or failed stays. KEYS[1]: as everywhere.
-- ARGV  how many at most
-- Reply how many; fewer than that: there are no more
local most, count = tonumber(ARGV[1]), 0

-- Nobody waits for it any more, and nothing is kept from being added because of it.
local function forget(id)
    local job = base .. id
    local stored = call('HMGET', job, 'deid', 'parent', 'parentKey')
    local held = stored[1] and base .. 'de:' .. stored[1]
    if held and call('GET', held) == id then
        call('DEL', held)
    end
    local parent = parent_of(stored[2], stored[3])
    delete_job(job)
    if parent and call('SREM', parent.key .. ':dependencies', job) == 1
        and call('SCARD', parent.key .. ':dependencies') == 0 then
        parent_may_go_on(parent)
    end
end

for _, name in ipairs({'wait', 'paused'}) do
    for _, id in ipairs(count < most and call('RPOP', base .. name, most - count) or {}) do
        forget(id)
        count = count + 1
    end
end
for _, name in ipairs({'prioritized', 'delayed'}) do
    local popped = count < most and call('ZPOPMIN', base .. name, most - count) or {}
    for at = 1, #popped, 2 do
        forget(popped[at])
        count = count + 1
    end
end
if count < most then
    call('DEL', base .. 'pc')
end
return count
