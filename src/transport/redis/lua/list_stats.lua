-- KEYS  queue, processing, deadlines, dead-letter queue, its processing
-- Reply {ready, in processing, of them due, dead}
local now = redis.call('TIME')[1]
return {
    redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[2]), redis.call('ZCOUNT', KEYS[3], '-inf', now),
    redis.call('LLEN', KEYS[4]) + redis.call('LLEN', KEYS[5]),
}
