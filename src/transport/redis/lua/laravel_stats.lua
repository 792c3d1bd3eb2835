-- KEYS  ready, reserved, delayed, dead-letter queue's ready, reserved, delayed
-- Reply {ready, reserved, of them due, delayed, of them due, dead}
local now = redis.call('TIME')[1]
return {
    redis.call('LLEN', KEYS[1]),
    redis.call('ZCARD', KEYS[2]), redis.call('ZCOUNT', KEYS[2], '-inf', now),
    redis.call('ZCARD', KEYS[3]), redis.call('ZCOUNT', KEYS[3], '-inf', now),
    redis.call('LLEN', KEYS[4]) + redis.call('ZCARD', KEYS[5]) + redis.call('ZCARD', KEYS[6]),
}
