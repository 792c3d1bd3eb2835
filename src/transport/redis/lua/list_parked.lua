-- A step through the deadlines, so that counting what is parked neither stops the server nor moves the bodies.
-- KEYS  deadlines
-- ARGV  cursor
-- Reply {cursor, parked ones that are not due}
local now = tonumber(redis.call('TIME')[1])
local page = redis.call('ZSCAN', KEYS[1], ARGV[1], 'MATCH', '00000000*', 'COUNT', 1000)
local count = 0
for i = 2, #page[2], 2 do
    if tonumber(page[2][i]) > now then
        count = count + 1
    end
end
return {page[1], count}
