-- room_numbers  v2
-- Leases the next sequence numbers of an activity's waiting room. A number is given once.
-- KEYS[1]  room:{a:<a>}:numbers   hash: last = the greatest number given; and since the count was lost from = what it
--          goes on from, known = what was known to be given then
-- ARGV[1]  how many, 1..100000
-- ARGV[2]  the greatest number that the caller knows to be given, 0 when it knows none
-- returns  {first}
-- cost     O(1), at most 3 commands
-- clock    TIME, when the count was lost: microseconds since 2020, which fewer than a million numbers a second do not
--          catch up with, so that no two counts meet; under 10^15 until 2051
-- on loss  of the reply: the numbers are skipped. Of the key: the count goes on behind the clock, and never behind what
--          the caller knows. Only a room that nobody has begun counts from 1: its opener sets last = 0

if #KEYS ~= 1 or #ARGV ~= 2 or #ARGV[1] > 6 or #ARGV[2] > 15 or not string.match(ARGV[1], '^%d+$') or not string.match(ARGV[2], '^%d+$') then
  return redis.error_reply('BADARGS room_numbers wants 1 key and 2 numbers')
end
local many, known = tonumber(ARGV[1]), tonumber(ARGV[2])
if many < 1 or many > 100000 then return redis.error_reply('BADARGS room_numbers: 1 to 100000 at once') end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end
local function text(n) return string.format('%.0f', n) end

local last = tonumber(redis.call('HGET', KEYS[1], 'last') or '-1')
if last < known then
  local time = redis.call('TIME')
  last = math.max((time[1] - 1577836800) * 1000000 + time[2], known)
  redis.call('HSET', KEYS[1], 'last', text(last + many), 'from', text(last), 'known', ARGV[2])
else
  redis.call('HSET', KEYS[1], 'last', text(last + many))
end
return {last + 1}
