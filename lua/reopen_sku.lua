-- reopen_sku  v1
-- Opens a restored SKU under a new incarnation, on the primary that answers. The epoch goes on.
-- KEYS[1]  inv:<tag>:stock hash, KEYS[2] inv:<tag>:log list, KEYS[3] sec:soldout:<tag> hash
-- ARGV[1]  least incarnation, 0 if none is known: the new one is the greater of it and the stored one + 1
-- returns  {MISSING} | {OPEN} it was open on this primary: nothing changed
--          | {REOPENED, remaining, incarnation, version, epoch, log length}
-- cost     O(1), at most 8 commands
-- clock    none
-- on loss  run again: it answers OPEN
if #KEYS ~= 3 or #ARGV ~= 1 then return redis.error_reply('BADARGS reopen_sku: want 3 keys and 1 argument') end
local least = tonumber(ARGV[1])
if not least or least < 0 or least >= 9007199254740992 or least ~= math.floor(least) then
  return redis.error_reply('BADARGS reopen_sku: argument 1 is no whole number of 0..2^53-1')
end
local kinds = {'hash', 'list', 'hash'}
for i, want in ipairs(kinds) do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= want then
    return redis.error_reply('WRONGTYPE reopen_sku: key ' .. i .. ' is a ' .. kind)
  end
end

local s = redis.call('HMGET', KEYS[1], 'remaining', 'incarnation', 'activity_version', 'stock_epoch', 'state', 'run_id')
for i = 1, 6 do
  if not s[i] then return {'MISSING'} end
end
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
if not run_id then return redis.error_reply('BADARGS reopen_sku: INFO server names no run_id') end
if s[5] == 'OPEN' and s[6] == run_id then return {'OPEN'} end

local incarnation = math.max(least, tonumber(s[2]) + 1)
local length = redis.call('LLEN', KEYS[2])
redis.call('HSET', KEYS[1], 'incarnation', string.format('%.0f', incarnation), 'run_id', run_id, 'state', 'OPEN')
redis.call('HSET', KEYS[3], 'state', tonumber(s[1]) > 0 and 'OPEN' or 'SOLD_OUT', 'incarnation', string.format('%.0f', incarnation),
  'activity_version', s[3], 'stock_epoch', s[4], 'log_length', string.format('%.0f', length))
return {'REOPENED', tonumber(s[1]), incarnation, tonumber(s[3]), tonumber(s[4]), length}
