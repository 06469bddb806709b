-- room_close  v1
-- Closes joining for the draw in one group of a waiting room: nobody who joins from now on has joined before.
-- KEYS[1]  room:{a:<a>:<group>}:closed   string: ms
-- ARGV[1]  ms, 1..10^15
-- returns  {ms in force}, the greatest it was ever given
-- cost     O(1), at most 2 commands; writes only when it rises
-- clock    none
-- on loss  the leader closes again before it seals; there is no expiry, the key goes with the activity

if #KEYS ~= 1 or #ARGV ~= 1 or #ARGV[1] > 15 or not string.match(ARGV[1], '^[1-9]%d*$') then
  return redis.error_reply('BADARGS room_close wants 1 key and a time in ms')
end
local at = tonumber(ARGV[1])
local closed = tonumber(redis.call('GET', KEYS[1]) or '0')
if at <= closed then return {closed} end
redis.call('SET', KEYS[1], ARGV[1])
return {at}
