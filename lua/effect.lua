-- effect  v2
-- Carries SQL's verdict on one reservation into the store. A reservation moves forward only:
--   LIVE -> CREATED -> PAID | RETURNED;  LIVE -> PAID | RETURNED | DUPLICATE | NO_CAPACITY
-- and all else changes nothing, so it may run any number of times, in any order, by anybody.
-- An order that the store does not know is adopted: its units are taken, even below zero. An
-- unknown reservation without a live order is noted and moves no units. Hence, at every moment,
-- remaining = total - LIVE - CREATED - PAID.
-- KEYS[1..8] as in reserve; KEYS[3] is this reservation's record
-- ARGV[1]  reservation_id, ARGV[2] user_id, ARGV[3] request_id, ARGV[4] body_hash, ARGV[5] quantity,
-- ARGV[6]  created_ms, ARGV[7] CREATED|PAID|RETURNED|DUPLICATE|NO_CAPACITY, ARGV[8] order_id (of DUPLICATE: the
--          existing order's), ARGV[9] of DUPLICATE: the existing order's reservation_id, else '',
-- ARGV[10] 1 if a user may buy again after a cancel, ARGV[11] closes_at_ms, ARGV[12] record_ttl_ms past it
-- returns  {MISSING} no stock, or none that can be read | {1 if it moved, crossed (1 to nothing left, -1 reopened, 0), incarnation, version,
--          epoch, log length}
-- cost     O(log pending), at most 28 commands
-- clock    the server's TIME, only so that the record outlives an ended activity
-- on loss  run again: what was done is found done
if #KEYS ~= 8 or #ARGV ~= 12 then return redis.error_reply('BADARGS effect: want 8 keys and 12 arguments') end
for _, i in ipairs({5, 6, 11, 12}) do
  local n = tonumber(ARGV[i])
  if not n or n < 1 or n >= 9007199254740992 or n ~= math.floor(n) then
    return redis.error_reply('BADARGS effect: argument ' .. i .. ' is no whole number of 1..2^53-1')
  end
end
local words = { -- state -> status and code of the request, kind in the log
  CREATED = {'ORDER_CREATED', 'ORDER_CREATED', 'created'}, PAID = {'PAID', 'ORDER_PAID', 'paid'},
  RETURNED = {'CANCELLED', 'ORDER_CANCELLED', 'returned'}, DUPLICATE = {'FAILED', 'DUPLICATE', 'failed'},
  NO_CAPACITY = {'FAILED', 'NO_CAPACITY', 'failed'},
}
local id, user, request, hash, state, order, rebuy = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[7], ARGV[8], ARGV[10] == '1'
local word = words[state]
if not word then return redis.error_reply('BADARGS effect: no state ' .. state) end
local kinds = {'hash', 'hash', 'hash', 'hash', 'zset', 'list', 'hash', 'hash'}
for i, want in ipairs(kinds) do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= want then
    return redis.error_reply('WRONGTYPE effect: key ' .. i .. ' is a ' .. kind)
  end
end

local s = redis.call('HMGET', KEYS[1], 'remaining', 'activity_version', 'stock_epoch', 'incarnation', 'freed', 'unheld')
for i = 1, 4 do
  if not s[i] or not string.match(s[i], '^%-?%d+$') then return {'MISSING'} end
end
local from, quantity, created = 'none', tonumber(ARGV[5]), ARGV[6]
local record = redis.call('HGET', KEYS[4], id)
if record then
  local old, units, at = string.match(record, '^([A-Z_]+)|[^|]*|[^|]*|(%d+)|(%d+)|')
  if old then from, quantity, created = old, tonumber(units), at end -- what was taken is what goes back
  -- One that cannot be read is as an unknown one: at worst its units are taken twice, until a restore counts them.
end

local live = state == 'CREATED' or state == 'PAID'
local forward = from == 'none' or from == 'LIVE' or (from == 'CREATED' and (state == 'PAID' or state == 'RETURNED'))
if not forward then
  -- A buyer that was lost is told anew: who has an order, and, where a user has one attempt, who cancelled it.
  if from == state and (live or (state == 'RETURNED' and not rebuy)) and redis.call('HSETNX', KEYS[2], user, id) == 1
    and tonumber(s[6]) then redis.call('HINCRBY', KEYS[1], 'unheld', -1) end
  return {0, 0, tonumber(s[4]), tonumber(s[2]), tonumber(s[3]), redis.call('LLEN', KEYS[6])}
end

-- Units.
local before = tonumber(s[1])
local after = before
if from == 'none' then
  if live then after = before - quantity end
elseif not live then
  after = before + quantity
end
if after ~= before then
  redis.call('HINCRBY', KEYS[1], 'remaining', string.format('%.0f', after - before))
end

-- The reservation and what it is waiting for.
redis.call('HSET', KEYS[4], id, state .. '|' .. user .. '|' .. request .. '|' .. string.format('%.0f', quantity) ..
  '|' .. created .. '|' .. order .. '|' .. hash)
redis.call('ZREM', KEYS[5], id)

-- The user: who holds what, and how often they may still try. From now on somebody who is no buyer may have an
-- earlier request, which reserve must look for.
if not live and s[5] ~= '1' then redis.call('HSET', KEYS[1], 'freed', '1') end
local attempt, last = '1', ''
local attempts = redis.call('HGET', KEYS[7], user)
if attempts then attempt, last = string.match(attempts, '^(%d+)|(.*)$') end
local held = redis.call('HGET', KEYS[2], user)
local freed, buyers = '0', 0 -- how many more of them there are
if live then
  buyers = redis.call('HSET', KEYS[2], user, id)
elseif state == 'RETURNED' and rebuy then
  attempt = string.format('%.0f', tonumber(attempt) + 1)
  redis.call('HSET', KEYS[7], user, attempt .. '|' .. id)
  if held == id then
    buyers = -redis.call('HDEL', KEYS[2], user)
    freed = '1'
  end
elseif state == 'RETURNED' then
  if not held then buyers = redis.call('HSET', KEYS[2], user, id) end -- SQL counts the cancelled order: say so at once
elseif state == 'NO_CAPACITY' then
  if held == id then
    buyers = -redis.call('HDEL', KEYS[2], user)
    freed = '1'
  end
  redis.call('HSET', KEYS[1], 'state', 'CLOSED') -- the store sold what SQL does not have: restore first
  redis.call('HSET', KEYS[8], 'state', 'CLOSED')
elseif held == id then -- DUPLICATE: the user holds the existing order, if that one has not gone back since
  local existing = redis.call('HGET', KEYS[4], ARGV[9])
  if ARGV[9] == '' or (rebuy and existing and string.find(existing, 'RETURNED|', 1, true) == 1) then
    buyers = -redis.call('HDEL', KEYS[2], user)
    freed = '1'
  else
    redis.call('HSET', KEYS[2], user, ARGV[9])
  end
end

-- Reservations less buyers: what snapshot knows a lost key by.
local unheld = (record and 0 or 1) - buyers
if unheld ~= 0 and tonumber(s[6]) then redis.call('HINCRBY', KEYS[1], 'unheld', unheld) end

-- The request's record.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('HSET', KEYS[3], 'body_hash', hash, 'status', word[1], 'code', word[2], 'reservation_id', id, 'order_id', order)
redis.call('PEXPIREAT', KEYS[3], string.format('%.0f', math.max(now, tonumber(ARGV[11])) + tonumber(ARGV[12])))

-- The log and the epoch.
local length = redis.call('RPUSH', KEYS[6], word[3] .. '|' .. user .. '|' .. request .. '|' .. hash .. '|' .. id ..
  '|' .. order .. '|' .. word[2] .. '|' .. attempt .. '|' .. freed)
local epoch, crossed = tonumber(s[3]), 0
if (before > 0) ~= (after > 0) then
  crossed = after > 0 and -1 or 1
  epoch = redis.call('HINCRBY', KEYS[1], 'stock_epoch', 1)
  length = redis.call('RPUSH', KEYS[6], 'epoch|||||||0|0')
  local sold = after > 0 and 'OPEN' or 'SOLD_OUT'
  if redis.call('HGET', KEYS[1], 'state') == 'CLOSED' then sold = 'CLOSED' end
  redis.call('HSET', KEYS[8], 'state', sold, 'incarnation', s[4], 'activity_version', s[2],
    'stock_epoch', string.format('%.0f', epoch), 'log_length', string.format('%.0f', length))
end
return {1, crossed, tonumber(s[4]), tonumber(s[2]), epoch, length}
