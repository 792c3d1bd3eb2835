-- What waits, in the order in which it will be taken. KEYS[1]: the queue's keys begin with it.
-- ARGV  how many to pass over, how many at most
-- Reply {data, {id, attempts made, name, telemetry metadata or ""}, data...}
local from, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local waiting = call('LLEN', base .. 'wait')
local ids = {}
if from < waiting then
    local page = call('LRANGE', base .. 'wait', -(from + most), -(from + 1))
    for at = #page, 1, -1 do
        ids[#ids + 1] = page[at]
    end
end
if #ids < most then
    local passed = math.max(from - waiting, 0)
    for _, id in ipairs(call('ZRANGE', base .. 'prioritized', passed, passed + most - #ids - 1)) do
        ids[#ids + 1] = id
    end
end
local page = {}
for _, id in ipairs(ids) do
    local stored = call('HMGET', base .. id, 'data', 'opts', 'atm', 'name')
    local opts = decode(stored[2])
    page[#page + 1] = stored[1] or ''
    page[#page + 1] = {id, tonumber(stored[3] or 0), stored[4] or '', type(opts.tm) == 'string' and opts.tm or ''}
end
return page
