-- snapshot  v2
-- Reads a SKU's stock and the length of its log in one moment, and whether its other keys are still there.
-- KEYS[1]  inv:<tag>:stock hash, KEYS[2] inv:<tag>:log list, KEYS[3] inv:<tag>:rsv hash, KEYS[4] inv:<tag>:buyers hash
-- ARGV     none
-- returns  {MISSING} | {UNREADABLE}: lost as a missing one is
--          | {total, remaining, incarnation, version, epoch, log length, 1 if OPEN on the restored primary and whole,
--          opens_at_ms, closes_at_ms}
--          Whole: rsv less buyers is what the stock's unheld says (every script that writes one of them keeps it; a
--          stock of an older version has none), and something is in rsv once something is sold
-- cost     O(1), 5 commands; writes nothing
-- clock    none
-- on loss  read again
if #KEYS ~= 4 or #ARGV ~= 0 then return redis.error_reply('BADARGS snapshot: want 4 keys and no argument') end
local s = redis.call('HMGET', KEYS[1], 'total', 'remaining', 'incarnation', 'activity_version', 'stock_epoch',
  'opens_at_ms', 'closes_at_ms', 'state', 'run_id', 'unheld')
for i = 1, 9 do
  if not s[i] then return {'MISSING'} end
end
for i = 1, 7 do
  if #s[i] > 16 or not string.match(s[i], '^%-?%d+$') then return {'UNREADABLE'} end
end
local open = 0
if s[8] == 'OPEN' and string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') == s[9] then open = 1 end
local reservations = redis.call('HLEN', KEYS[3])
if s[10] and tonumber(s[10]) ~= reservations - redis.call('HLEN', KEYS[4]) then open = 0 end
if reservations == 0 and s[1] ~= s[2] then open = 0 end
return {tonumber(s[1]), tonumber(s[2]), tonumber(s[3]), tonumber(s[4]), tonumber(s[5]), redis.call('LLEN', KEYS[2]),
  open, tonumber(s[6]), tonumber(s[7])}
