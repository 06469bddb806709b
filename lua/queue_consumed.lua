-- queue_consumed  v1
-- Says whether everything that was in a stream some time ago has been acknowledged.
-- An acknowledged entry is deleted in the same transaction, so the oldest entry of the
-- stream is the oldest unacknowledged one.
-- KEYS[1]  <stream>     stream
-- ARGV[1]  ago_ms (integer >= 0): the moment asked about, before now
-- returns  {1} everything older is acknowledged | {0} something is not
-- cost     O(1)
-- clock    TIME, the same that made the ids
-- on loss  asked again

if #KEYS ~= 1 or #ARGV ~= 1 or #ARGV[1] > 13 or not string.match(ARGV[1], '^%d+$') then
  return redis.error_reply('BADARGS queue_consumed wants 1 key and ago_ms')
end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {1} end
if kind ~= 'stream' then
  return redis.error_reply('WRONGTYPE queue_consumed: the stream is a ' .. kind)
end

local now = redis.call('TIME')
-- one more millisecond: ids are cut to milliseconds, and so is ago_ms
local at = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) - tonumber(ARGV[1]) + 1
if at <= 0 then return {1} end
local oldest = redis.call('XRANGE', KEYS[1], '-', string.format('%.0f', at), 'COUNT', 1)
if #oldest == 0 then return {1} end
return {0}
