-- reopen_sku  v2
-- Opens a restored SKU under a new incarnation, on the primary that answers. What remains is counted anew: the total
-- less what the reservations hold, whatever was there. The epoch goes on.
-- KEYS[1]  inv:<tag>:stock hash, KEYS[2] inv:<tag>:log list, KEYS[3] sec:soldout:<tag> hash, KEYS[4] inv:<tag>:rsv hash,
-- KEYS[5]  inv:<tag>:buyers hash
-- ARGV[1]  least incarnation, 0 if none is known: the new one is the greater of it and the stored one + 1
-- ARGV[2]  units held in LIVE, CREATED and PAID, ARGV[3] reservations in all, ARGV[4] log length, as counted: every
--          script that moves a reservation writes the log, so while these stand the count stands
-- returns  {MISSING} | {OPEN} it was open on this primary: nothing changed | {MOVED}: count again; nothing changed
--          | {REOPENED, remaining, incarnation, version, epoch, log length}
-- cost     O(1), at most 12 commands
-- clock    none
-- on loss  run again: it answers OPEN
if #KEYS ~= 5 or #ARGV ~= 4 then return redis.error_reply('BADARGS reopen_sku: want 5 keys and 4 arguments') end
for i = 1, 4 do
  local n = tonumber(ARGV[i])
  if not n or n < 0 or n >= 9007199254740992 or n ~= math.floor(n) then
    return redis.error_reply('BADARGS reopen_sku: argument ' .. i .. ' is no whole number of 0..2^53-1')
  end
end
local kinds = {'hash', 'list', 'hash', 'hash', 'hash'}
for i, want in ipairs(kinds) do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= want then
    return redis.error_reply('WRONGTYPE reopen_sku: key ' .. i .. ' is a ' .. kind)
  end
end

local s = redis.call('HMGET', KEYS[1], 'total', 'remaining', 'incarnation', 'activity_version', 'stock_epoch', 'state', 'run_id')
for i = 1, 7 do
  if not s[i] or (i < 6 and not string.match(s[i], '^%-?%d+$')) then return {'MISSING'} end
end
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
if not run_id then return redis.error_reply('BADARGS reopen_sku: INFO server names no run_id') end
if s[6] == 'OPEN' and s[7] == run_id then return {'OPEN'} end

local length, reservations = redis.call('LLEN', KEYS[2]), redis.call('HLEN', KEYS[4])
if length ~= tonumber(ARGV[4]) or reservations ~= tonumber(ARGV[3]) then return {'MOVED'} end

local incarnation = math.max(tonumber(ARGV[1]), tonumber(s[3]) + 1)
local remaining, epoch = tonumber(s[1]) - tonumber(ARGV[2]), tonumber(s[5])
if (tonumber(s[2]) > 0) ~= (remaining > 0) then
  epoch = epoch + 1
  length = redis.call('RPUSH', KEYS[2], 'epoch|||||||0|0')
end
redis.call('HSET', KEYS[1], 'remaining', string.format('%.0f', remaining), 'stock_epoch', string.format('%.0f', epoch),
  'incarnation', string.format('%.0f', incarnation), 'run_id', run_id, 'state', 'OPEN',
  'freed', '1', -- who was freed is not known here
  'unheld', string.format('%.0f', reservations - redis.call('HLEN', KEYS[5])))
redis.call('HSET', KEYS[3], 'state', remaining > 0 and 'OPEN' or 'SOLD_OUT', 'incarnation', string.format('%.0f', incarnation),
  'activity_version', s[4], 'stock_epoch', string.format('%.0f', epoch), 'log_length', string.format('%.0f', length))
return {'REOPENED', remaining, incarnation, tonumber(s[4]), epoch, length}
