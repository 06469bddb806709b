-- room_join  v2
-- Gives a user one place in an activity's waiting room, set if absent.
-- KEYS[1]  room:{a:<a>:<group>}:users:<part>   hash: user -> "lane joined_ms sequence"
-- KEYS[2]  room:{a:<a>:<group>}:log            list, append-only: "user lane joined_ms sequence"
-- KEYS[3]  room:{a:<a>:<group>}:closed         string: joined_ms at the least, once joining for the draw has closed
-- ARGV[1]  user id
-- ARGV[2]  lane
-- ARGV[3]  sequence, 1..10^15: what a new place gets
-- ARGV[4]  joined_ms of a place that is given back as it was; '' for the time of now
-- ARGV[5]  ms that the caller knows joining for the draw has closed at, 0 for none: a store that came back empty has
--          lost KEYS[3]
-- returns  {1 new | 0 known, lane, joined_ms, sequence}
-- cost     O(1), at most 6 commands; one for a user who is known
-- clock    TIME, and never before KEYS[3] or ARGV[5]: a late join could slip before a draw that is over
-- on loss  a lost reply changes nothing: the next join reads the same place. A lost key is a lost room: there is no
--          expiry, the keys go with the activity

if #KEYS ~= 3 or #ARGV ~= 5 then
  return redis.error_reply('BADARGS room_join wants 3 keys and 5 arguments')
end
local user, lane = ARGV[1], ARGV[2]
if #user > 64 or #lane > 64 or not string.match(user, '^[%w_-]+$') or not string.match(lane, '^[%w._:-]+$') then
  return redis.error_reply('BADARGS room_join: user or lane is empty, too long or outside its alphabet')
end
if #ARGV[3] > 15 or not string.match(ARGV[3], '^[1-9]%d*$') or #ARGV[4] > 15 or not string.match(ARGV[4], '^%d*$')
  or #ARGV[5] > 15 or not string.match(ARGV[5], '^%d+$') then
  return redis.error_reply('BADARGS room_join: sequence or a time')
end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local place = redis.call('HGET', KEYS[1], user)
if place then
  local was, joined, sequence = string.match(place, '^(%S+) (%d+) (%d+)$')
  return {0, was, tonumber(joined), tonumber(sequence)}
end
local joined = ARGV[4]
if joined == '' then
  local closed = tonumber(redis.call('GET', KEYS[3]) or '0')
  local time = redis.call('TIME')
  joined = string.format('%.0f', math.max(time[1] * 1000 + math.floor(time[2] / 1000), closed, tonumber(ARGV[5])))
end
place = lane .. ' ' .. joined .. ' ' .. ARGV[3]
redis.call('RPUSH', KEYS[2], user .. ' ' .. place)
redis.call('HSET', KEYS[1], user, place)
return {1, lane, tonumber(joined), tonumber(ARGV[3])}
