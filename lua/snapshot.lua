-- snapshot  v1
-- Reads a SKU's stock and the length of its log in one moment.
-- KEYS[1]  inv:<tag>:stock hash, KEYS[2] inv:<tag>:log list
-- ARGV     none
-- returns  {MISSING} | {total, remaining, incarnation, version, epoch, log length, 1 if OPEN on the restored primary,
--          opens_at_ms, closes_at_ms}
-- cost     O(1), 3 commands; writes nothing
-- clock    none
-- on loss  read again
if #KEYS ~= 2 or #ARGV ~= 0 then return redis.error_reply('BADARGS snapshot: want 2 keys and no argument') end
local s = redis.call('HMGET', KEYS[1], 'total', 'remaining', 'incarnation', 'activity_version', 'stock_epoch',
  'opens_at_ms', 'closes_at_ms', 'state', 'run_id')
for i = 1, 9 do
  if not s[i] then return {'MISSING'} end
end
local open = 0
if s[8] == 'OPEN' and string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') == s[9] then open = 1 end
return {tonumber(s[1]), tonumber(s[2]), tonumber(s[3]), tonumber(s[4]), tonumber(s[5]), redis.call('LLEN', KEYS[2]),
  open, tonumber(s[6]), tonumber(s[7])}
