-- Contract 7.2, Push: the jobs, and a notify token for each.
-- KEYS  ready, notify
-- ARGV  jobs
for i = 1, #ARGV do
    redis.call('RPUSH', KEYS[1], ARGV[i])
    redis.call('RPUSH', KEYS[2], 1)
end
return 1
