-- room_numbers  v1
-- Leases the next sequence numbers of an activity's waiting room. A number is given once.
-- KEYS[1]  room:{a:<a>}:numbers   string: the greatest number given
-- ARGV[1]  how many, 1..100000
-- ARGV[2]  the greatest number that the caller knows to be given, 0 when it knows none
-- returns  {first}
-- cost     O(1), 2 commands
-- clock    none
-- on loss  of the reply: the numbers are skipped. Of the key: the count goes on behind what the caller knows and
--          what may have been given since it looked, so that nobody gets a number for the second time

if #KEYS ~= 1 or #ARGV ~= 2 or #ARGV[1] > 6 or #ARGV[2] > 15 or not string.match(ARGV[1], '^%d+$') or not string.match(ARGV[2], '^%d+$') then
  return redis.error_reply('BADARGS room_numbers wants 1 key and 2 numbers')
end
local many, known = tonumber(ARGV[1]), tonumber(ARGV[2])
if many < 1 or many > 100000 then return redis.error_reply('BADARGS room_numbers: 1 to 100000 at once') end
local given = tonumber(redis.call('GET', KEYS[1]) or '0')
-- The same arithmetic as admission.Beyond.
if given < known then given = known + 1000 + math.floor(known / 4) end
redis.call('SET', KEYS[1], string.format('%.0f', given + many))
return {given + 1}
