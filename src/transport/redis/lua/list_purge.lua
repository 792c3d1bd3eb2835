-- KEYS  queue, processing, deadlines, lapses
-- Reply how many elements are gone
local count = redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2])
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return count
