-- Jobs that failed, those first that failed first. KEYS[1]: the queue's keys begin with it.
-- ARGV  until when, in ms ("0": now), how many to pass over, how many at most
-- Reply {until when, data, {id, attempts made, name, telemetry metadata or "", 0, when it failed}, data...}
local till = ARGV[1] == '0' and now_text or ARGV[1]
local page = {till}
for _, id in ipairs(call('ZRANGEBYSCORE', base .. 'failed', '-inf', till, 'LIMIT', ARGV[2], ARGV[3])) do
    local stored = call('HMGET', base .. id, 'data', 'opts', 'atm', 'name', 'finishedOn')
    local tm = decode(stored[2]).tm
    page[#page + 1] = stored[1] or ''
    page[#page + 1] = {id, tonumber(stored[3] or 0), stored[4] or '', type(tm) == 'string' and tm or '', 0,
        tonumber(stored[5] or 0)}
end
return page
