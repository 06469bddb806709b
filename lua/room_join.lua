-- room_join  v1
-- Gives a user one place in an activity's waiting room, set if absent.
-- KEYS[1]  room:{a:<a>}:users:<0..255>   hash: user -> "lane joined_ms sequence"
-- KEYS[2]  room:{a:<a>}:log              list, append-only: "user lane joined_ms"; its length is the number joined
-- ARGV[1]  user id
-- ARGV[2]  lane
-- returns  {1 new | 0 known, lane, joined_ms, sequence}
-- cost     O(1), at most 6 commands; one for a user who is known
-- clock    TIME; joined_ms never goes back within an activity, or a late join could slip before a draw that is over
-- on loss  a lost reply changes nothing: the next join reads the same place. A lost key is a lost room: there is no
--          expiry, the keys go with the activity

if #KEYS ~= 2 or #ARGV ~= 2 then
  return redis.error_reply('BADARGS room_join wants 2 keys and 2 arguments')
end
local user, lane = ARGV[1], ARGV[2]
if #user > 64 or #lane > 64 or not string.match(user, '^[%w_-]+$') or not string.match(lane, '^[%w._:-]+$') then
  return redis.error_reply('BADARGS room_join: user or lane is empty, too long or outside its alphabet')
end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local place = redis.call('HGET', KEYS[1], user)
if place then
  local was, joined, sequence = string.match(place, '^(%S+) (%d+) (%d+)$')
  return {0, was, tonumber(joined), tonumber(sequence)}
end
local tail = redis.call('LINDEX', KEYS[2], -1)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tail then now = math.max(now, tonumber(string.match(tail, '(%d+)$'))) end

local joined = string.format('%.0f', now)
local sequence = redis.call('RPUSH', KEYS[2], user .. ' ' .. lane .. ' ' .. joined)
redis.call('HSET', KEYS[1], user, lane .. ' ' .. joined .. ' ' .. string.format('%.0f', sequence))
return {1, lane, now, sequence}
