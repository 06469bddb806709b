-- close_sku  v2
-- Closes a SKU before it is restored: nothing is reserved until reopen_sku. A stock that is lost, or of which a
-- field is gone or cannot be read, is made anew, closed; reopen_sku counts what remains.
-- KEYS[1]  inv:<tag>:stock hash, KEYS[2] sec:soldout:<tag> hash
-- ARGV[1]  activity_version, ARGV[2] total, ARGV[3] opens_at_ms, ARGV[4] closes_at_ms: of a stock made anew; the total
--          of every one, for it never changes and remaining is counted from it
-- returns  {0, now_ms} closed | {1, now_ms} made anew, closed; now_ms is the server's, after which nothing is reserved
-- cost     O(1), at most 6 commands
-- clock    the server's TIME, for now_ms, and so that a stock made anew begins above every earlier incarnation
-- on loss  run again
if #KEYS ~= 2 or #ARGV ~= 4 then return redis.error_reply('BADARGS close_sku: want 2 keys and 4 arguments') end
for i = 1, 4 do
  local n = tonumber(ARGV[i])
  if not n or n < 1 or n >= 9007199254740992 or n ~= math.floor(n) then
    return redis.error_reply('BADARGS close_sku: argument ' .. i .. ' is no whole number of 1..2^53-1')
  end
end
for i = 1, 2 do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= 'hash' then
    return redis.error_reply('WRONGTYPE close_sku: key ' .. i .. ' is a ' .. kind)
  end
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local anew = 0
local s = redis.call('HMGET', KEYS[1], 'total', 'remaining', 'incarnation', 'activity_version', 'stock_epoch',
  'opens_at_ms', 'closes_at_ms')
for i = 1, 7 do
  if not s[i] or #s[i] > 16 or not string.match(s[i], '^%-?%d+$') then anew = 1 end
end
if redis.call('HEXISTS', KEYS[1], 'run_id') == 0 then anew = 1 end
if anew == 1 then
  redis.call('HSET', KEYS[1],
    'total', ARGV[2], 'remaining', ARGV[2], 'stock_epoch', '0', 'activity_version', ARGV[1],
    'opens_at_ms', ARGV[3], 'closes_at_ms', ARGV[4], 'incarnation', time[1], 'run_id', 'none', 'state', 'CLOSED',
    'freed', '1') -- who had what is not known here
else
  redis.call('HSET', KEYS[1], 'total', ARGV[2], 'state', 'CLOSED')
end
redis.call('HSET', KEYS[2], 'state', 'CLOSED')
return {anew, now}
