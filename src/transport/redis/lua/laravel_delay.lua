-- Contract 7.2: jobs for later.
-- KEYS  delayed, ready, notify
-- ARGV  pairs: delay in ms, job
local now = tonumber(redis.call('TIME')[1])
for i = 1, #ARGV, 2 do
    if redis.call('ZADD', KEYS[1], 'NX', now + math.ceil(tonumber(ARGV[i]) / 1000), ARGV[i + 1]) == 0 then
        -- One of the same bytes waits already, and a set holds only one: rather too early than lost.
        redis.call('RPUSH', KEYS[2], ARGV[i + 1])
        redis.call('RPUSH', KEYS[3], 1)
    end
end
return 1
