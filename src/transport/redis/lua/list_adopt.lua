-- ?adopt=: elements in processing that have no deadline, seen so for ARGV[1] seconds, get one (contract 7.1).
-- KEYS  processing, deadlines, orphans (a hash: element's SHA-1 and number -> second it was first seen)
-- ARGV  seconds, retry_after in seconds or +inf, 24 hex digits that begin the tokens
-- Reply how many were adopted
local now = tonumber(redis.call('TIME')[1])
local owned = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local raw = string.sub(member, 34)
    owned[raw] = (owned[raw] or 0) + 1
end
local seen, orphans, adopted = {}, {}, 0
for _, raw in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    if (owned[raw] or 0) > 0 then
        owned[raw] = owned[raw] - 1
    else
        seen[raw] = (seen[raw] or 0) + 1
        local field = redis.sha1hex(raw) .. seen[raw]
        local since = tonumber(redis.call('HGET', KEYS[3], field) or now)
        if now - since >= tonumber(ARGV[1]) then
            adopted = adopted + 1
            local score = ARGV[2] == '+inf' and '+inf' or now + tonumber(ARGV[2])
            redis.call('ZADD', KEYS[2], score, string.format('%s%08x:', ARGV[3], adopted) .. raw)
        else
            orphans[#orphans + 1] = field
            orphans[#orphans + 1] = since
        end
    end
end
redis.call('DEL', KEYS[3])
for i = 1, #orphans, 2 do
    redis.call('HSET', KEYS[3], orphans[i], orphans[i + 1])
end
if #orphans > 0 then
    redis.call('EXPIRE', KEYS[3], tonumber(ARGV[1]) * 2 + 3600)
end
return adopted
