-- reserve  v1
-- Holds units of one SKU for one user. Idempotent on (user, request_id): run twice, the
-- second run changes nothing and tells the current result.
-- KEYS[1]  inv:<tag>:stock                hash
-- KEYS[2]  inv:<tag>:buyers               hash: user -> reservation_id
-- KEYS[3]  inv:<tag>:req:<user>:<request> hash: body_hash, status, code, reservation_id, order_id
-- KEYS[4]  inv:<tag>:rsv                  hash: reservation_id -> state|user|request|quantity|created_ms|order_id|body_hash
-- KEYS[5]  inv:<tag>:pending              zset: reservation_id by next action, ms
-- KEYS[6]  inv:<tag>:log                  list: kind|user|request|body_hash|reservation_id|order_id|code|attempt|freed
-- KEYS[7]  inv:<tag>:attempts             hash: user -> attempt|last returned reservation_id
-- KEYS[8]  sec:soldout:<tag>              hash
-- ARGV[1]  activity_version, ARGV[2] user_id, ARGV[3] request_id, ARGV[4] reservation_id, ARGV[5] body_hash,
-- ARGV[6]  quantity, ARGV[7] max_attempts, ARGV[8] send_grace_ms, ARGV[9] record_ttl_ms past the activity's end
-- returns  {RESERVED, incarnation, version, epoch, log length, 1 if it crossed to nothing left}
--          | {SAME, request_id, body_hash, reservation_id, order_id, code} this request, its current result
--          | {HOLDER, request_id, body_hash, reservation_id, order_id, code} the user's other reservation
--          | {SOLD_OUT, remaining, incarnation, version, epoch, log length} | {BODY_CONFLICT}
--          | {MISSING} no stock: not sold out | {NOT_OPEN} | {ENDED} | {VERSION} | {CLOSED, state or run_id}
-- cost     O(1); sold out 4 commands, reserved 16; writes only when reserved
-- clock    the server's TIME, for the opening hours, created_ms and the first next action. A SKU of which
--          nothing is left says so whatever the hour
-- on loss  of the reply: run again, it reads SAME. Of the write (a failover): run_id differs, so nothing
--          is reserved until the SKU is restored from SQL
if #KEYS ~= 8 or #ARGV ~= 9 then return redis.error_reply('BADARGS reserve: want 8 keys and 9 arguments') end
local user, request, id, hash, quantity = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
if not quantity or quantity < 1 or quantity >= 9007199254740992 or quantity ~= math.floor(quantity) then
  return redis.error_reply('BADARGS reserve: quantity is no whole number of 1..2^53-1')
end

-- The result that an older reservation has by now, told as this request's or another's.
local function told(record)
  local codes = {
    LIVE = 'SECKILL_QUEUED', CREATED = 'ORDER_CREATED', PAID = 'ORDER_PAID',
    RETURNED = 'ORDER_CANCELLED', DUPLICATE = 'DUPLICATE', NO_CAPACITY = 'NO_CAPACITY',
  }
  local state, owner, req, order, body = string.match(record, '^([A-Z_]+)|([^|]*)|([^|]*)|%d+|%d+|([^|]*)|([^|]*)$')
  return req, body, order, codes[state], owner
end
local function same(record, rid)
  local req, body, order, code, owner = told(record)
  if req ~= request or owner ~= user then
    return redis.error_reply('BADARGS reserve: this reservation_id is of another request')
  end
  if body ~= hash then return {'BODY_CONFLICT'} end
  return {'SAME', req, body, rid, order, code}
end
local function holder(rid)
  local record = redis.call('HGET', KEYS[4], rid)
  if not record then return {'HOLDER', '', '', rid, '', ''} end -- known from SQL alone: a DUPLICATE named it
  if rid == id then return same(record, rid) end                -- this request, whose record has expired
  local req, body, order, code = told(record)
  return {'HOLDER', req, body, rid, order, code}
end

-- A read of the wrong type fails by itself, before any write.
local seen = redis.call('HGET', KEYS[3], 'body_hash')
if seen then
  if seen ~= hash then return {'BODY_CONFLICT'} end
  local r = redis.call('HMGET', KEYS[3], 'reservation_id', 'order_id', 'code')
  return {'SAME', request, seen, r[1], r[2], r[3]}
end
local held = redis.call('HGET', KEYS[2], user)
if held then return holder(held) end

local s = redis.call('HMGET', KEYS[1], 'remaining', 'activity_version', 'stock_epoch', 'incarnation', 'state',
  'opens_at_ms', 'closes_at_ms', 'run_id')
if not (s[1] and s[2] and s[3] and s[4] and s[5] and s[6] and s[7] and s[8]) then return {'MISSING'} end
local remaining, now = tonumber(s[1]), nil
if remaining > 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  if now < tonumber(s[6]) then return {'NOT_OPEN'} end
  if now >= tonumber(s[7]) then return {'ENDED'} end
end
if s[2] ~= ARGV[1] then return {'VERSION'} end
if s[5] ~= 'OPEN' then return {'CLOSED', 'state'} end
if remaining < quantity then
  return {'SOLD_OUT', remaining, tonumber(s[4]), tonumber(s[2]), tonumber(s[3]), redis.call('LLEN', KEYS[6])}
end

-- Off the sold-out path from here on.
for i = 7, 9 do
  local n = tonumber(ARGV[i])
  if not n or n < 1 or n >= 9007199254740992 or n ~= math.floor(n) then
    return redis.error_reply('BADARGS reserve: argument ' .. i .. ' is no whole number of 1..2^53-1')
  end
end
local attempt, last = '1', nil
local attempts = redis.call('HGET', KEYS[7], user)
if attempts then
  attempt, last = string.match(attempts, '^(%d+)|(.*)$')
  if tonumber(attempt) > tonumber(ARGV[7]) then return holder(last) end
end
local before = redis.call('HGET', KEYS[4], id) -- the same request_id never holds twice, even when its record is gone
if before then return same(before, id) end
local server = redis.call('INFO', 'server')
local _, at = string.find(server, 'run_id:', 1, true)
if not at or string.sub(server, at + 1, at + #s[8]) ~= s[8] then return {'CLOSED', 'run_id'} end
-- The hashes were read above, and the log is the first to be written: these are what is left to check.
local kind = redis.call('TYPE', KEYS[5]).ok
if kind ~= 'none' and kind ~= 'zset' then return redis.error_reply('WRONGTYPE reserve: key 5 is a ' .. kind) end
if remaining == quantity then
  kind = redis.call('TYPE', KEYS[8]).ok
  if kind ~= 'none' and kind ~= 'hash' then return redis.error_reply('WRONGTYPE reserve: key 8 is a ' .. kind) end
end

local created = string.format('%.0f', now)
local length = redis.call('RPUSH', KEYS[6],
  'reserved|' .. user .. '|' .. request .. '|' .. hash .. '|' .. id .. '||SECKILL_QUEUED|' .. attempt .. '|0')
redis.call('HINCRBY', KEYS[1], 'remaining', -quantity)
redis.call('HSET', KEYS[2], user, id)
redis.call('HSET', KEYS[4], id, 'LIVE|' .. user .. '|' .. request .. '|' .. ARGV[6] .. '|' .. created .. '||' .. hash)
redis.call('HSET', KEYS[3], 'body_hash', hash, 'status', 'QUEUED', 'code', 'SECKILL_QUEUED',
  'reservation_id', id, 'order_id', '')
redis.call('PEXPIREAT', KEYS[3], tonumber(s[7]) + tonumber(ARGV[9])) -- a number below 2^53 is passed exactly
redis.call('ZADD', KEYS[5], now + tonumber(ARGV[8]), id)
local epoch, crossed = tonumber(s[3]), 0
if remaining == quantity then
  crossed, epoch = 1, redis.call('HINCRBY', KEYS[1], 'stock_epoch', 1)
  length = redis.call('RPUSH', KEYS[6], 'epoch|||||||0|0')
  redis.call('HSET', KEYS[8], 'state', 'SOLD_OUT', 'incarnation', s[4], 'activity_version', s[2],
    'stock_epoch', string.format('%.0f', epoch), 'log_length', string.format('%.0f', length))
end
return {'RESERVED', tonumber(s[4]), tonumber(s[2]), epoch, length, crossed}
