-- warm  v2
-- Creates a SKU's stock if it is absent. Of a living stock it changes only the activity
-- version and times, and only forward: remaining, epoch, incarnation and state stay.
-- KEYS[1]  inv:<tag>:stock   hash
-- KEYS[2]  sec:soldout:<tag> hash
-- KEYS[3]  inv:<tag>:rsv     hash, read only: reservations of a stock that was lost
-- ARGV[1]  activity_version, ARGV[2] total (units, 1..2^40), ARGV[3] opens_at_ms, ARGV[4] closes_at_ms
-- returns  {1} created | {0} it was there | {-1, total} it was there with another total
-- cost     O(1), at most 8 commands
-- clock    none
-- on loss  run again: the second run finds the stock and changes nothing
if #KEYS ~= 3 or #ARGV ~= 4 then return redis.error_reply('BADARGS warm: want 3 keys and 4 arguments') end
for i = 1, 4 do
  local n = tonumber(ARGV[i])
  if not n or n < 1 or n >= 9007199254740992 or n ~= math.floor(n) then
    return redis.error_reply('BADARGS warm: argument ' .. i .. ' is no whole number of 1..2^53-1')
  end
end
for i = 1, 3 do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= 'hash' then
    return redis.error_reply('WRONGTYPE warm: key ' .. i .. ' is a ' .. kind)
  end
end

local found = redis.call('HMGET', KEYS[1], 'total', 'activity_version', 'incarnation', 'stock_epoch', 'state')
if not found[1] then
  local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  if not run_id then return redis.error_reply('BADARGS warm: INFO server names no run_id') end
  local reservations = redis.call('EXISTS', KEYS[3]) -- of a stock that was lost: snapshot then calls for a restore
  redis.call('HSET', KEYS[1],
    'total', ARGV[2], 'remaining', ARGV[2], 'stock_epoch', '0', 'activity_version', ARGV[1],
    'opens_at_ms', ARGV[3], 'closes_at_ms', ARGV[4], 'incarnation', '1', 'run_id', run_id, 'state', 'OPEN',
    'freed', reservations, -- see reserve
    'unheld', reservations == 0 and '0' or 'lost') -- reservations less buyers: see snapshot
  redis.call('HSET', KEYS[2],
    'state', 'OPEN', 'incarnation', '1', 'activity_version', ARGV[1], 'stock_epoch', '0', 'log_length', '0')
  return {1}
end
if found[1] ~= ARGV[2] then return {-1, tonumber(found[1]) or 0} end
if tonumber(ARGV[1]) > tonumber(found[2]) then
  redis.call('HSET', KEYS[1], 'activity_version', ARGV[1], 'opens_at_ms', ARGV[3], 'closes_at_ms', ARGV[4])
  redis.call('HSET', KEYS[2], 'activity_version', ARGV[1])
end
return {0}
