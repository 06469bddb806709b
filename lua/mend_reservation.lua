-- mend_reservation  v1
-- What a restore does for one reservation that SQL has not decided. If the stock knows it in LIVE, its user and its
-- next action are told anew where they were lost. If it is in the log alone, nothing can decide it any more: its user
-- is freed, its request forgotten, so that the same submit may come again.
-- KEYS[1..8] as in reserve; KEYS[3] is this reservation's record
-- ARGV[1]  reservation_id, ARGV[2] user_id, ARGV[3] request_id, ARGV[4] body_hash
-- returns  {1 if something was written}
-- cost     O(log pending), at most 7 commands
-- clock    none: a next action that was lost is due at once
-- on loss  run again: what was done is found done
if #KEYS ~= 8 or #ARGV ~= 4 then return redis.error_reply('BADARGS mend_reservation: want 8 keys and 4 arguments') end
local kinds = {'hash', 'hash', 'hash', 'hash', 'zset', 'list', 'hash', 'hash'}
for i, want in ipairs(kinds) do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= want then
    return redis.error_reply('WRONGTYPE mend_reservation: key ' .. i .. ' is a ' .. kind)
  end
end
if redis.call('HGET', KEYS[1], 'state') ~= 'CLOSED' then return {0} end -- restored by somebody else

local id, user = ARGV[1], ARGV[2]
local record = redis.call('HGET', KEYS[4], id)
if record then
  if string.find(record, 'LIVE|', 1, true) ~= 1 then return {0} end
  local held = redis.call('HSETNX', KEYS[2], user, id)
  local due = redis.call('ZADD', KEYS[5], 'NX', '0', id)
  return {math.max(held, due)}
end

local written = redis.call('ZREM', KEYS[5], id)
if redis.call('HGET', KEYS[2], user) == id then written = written + redis.call('HDEL', KEYS[2], user) end
if redis.call('HGET', KEYS[3], 'reservation_id') == id then written = written + redis.call('UNLINK', KEYS[3]) end
if written == 0 then return {0} end
redis.call('RPUSH', KEYS[6], 'failed|' .. user .. '|' .. ARGV[3] .. '|' .. ARGV[4] .. '|' .. id .. '||NO_CAPACITY|1|1')
return {1}
