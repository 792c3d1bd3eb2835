-- Contract 7.1, delays: elements wait in the processing list until a sweep finds them due.
-- KEYS  processing, deadlines
-- ARGV  8 hex digits for the tokens, then pairs: delay in ms, element
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
for i = 2, #ARGV, 2 do
    local due, raw = now + tonumber(ARGV[i]), ARGV[i + 1]
    redis.call('RPUSH', KEYS[1], raw)
    redis.call('ZADD', KEYS[2], math.ceil(due / 1000), string.format('00000000%012x%s%04x:', due, ARGV[1], i) .. raw)
end
return 1
