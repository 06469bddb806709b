-- queue_send  v1
-- Appends messages to a stream, all or none. An acknowledged message is deleted, so
-- the stream's length is what is not acknowledged yet; it is bounded by refusing, never
-- by trimming, which would lose reservations' messages.
-- KEYS[1]  <stream>     stream: fields k (key), b (body)
-- ARGV[1]  max_length (integer > 0)
-- ARGV[2..] key, body, key, body, ... (1 to 256 pairs)
-- returns  {1, length} appended | {0, length} full, nothing written
-- cost     O(pairs)
-- clock    the server's, in the ids of the entries
-- on loss  recovery sends the reservation again under the same key

if #KEYS ~= 1 or #ARGV < 3 or #ARGV % 2 == 0 or #ARGV > 513 then
  return redis.error_reply('BADARGS queue_send wants 1 key, max_length and 1 to 256 pairs')
end
if #ARGV[1] > 15 or not string.match(ARGV[1], '^[1-9]%d*$') then
  return redis.error_reply('BADARGS queue_send: max_length out of range')
end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE queue_send: the stream is a ' .. kind)
end

local length = redis.call('XLEN', KEYS[1])
local pairs_given = (#ARGV - 1) / 2
if length + pairs_given > tonumber(ARGV[1]) then return {0, length} end
for i = 2, #ARGV, 2 do
  redis.call('XADD', KEYS[1], '*', 'k', ARGV[i], 'b', ARGV[i + 1])
end
return {1, length + pairs_given}
