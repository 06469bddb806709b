-- reserve  v2
-- Holds units of one SKU for one user. Idempotent on (user, request_id): run twice, the
-- second run changes nothing and tells the current result.
-- KEYS[1]  inv:<tag>:stock                hash
-- KEYS[2]  inv:<tag>:buyers               hash: user -> reservation_id
-- KEYS[3]  inv:<tag>:req:<user>:<request> hash: body_hash, status, code, reservation_id, order_id once there is one
-- KEYS[4]  inv:<tag>:rsv                  hash: reservation_id -> state|user|request|quantity|created_ms|order_id|body_hash
-- KEYS[5]  inv:<tag>:pending              zset: reservation_id by next action, ms
-- KEYS[6]  inv:<tag>:log                  list: kind|user|request|body_hash|reservation_id|order_id|code|attempt|freed
-- KEYS[7]  inv:<tag>:attempts             hash: user -> attempt|last returned reservation_id
-- KEYS[8]  sec:soldout:<tag>              hash
-- ARGV[1]  activity_version, ARGV[2] user_id, ARGV[3] request_id, ARGV[4] reservation_id, ARGV[5] body_hash,
-- ARGV[6]  quantity, ARGV[7] max_attempts, ARGV[8] send_grace_ms, ARGV[9] record_ttl_ms past the activity's end
-- returns  words divided by '|', which cost less than an array:
--          RESERVED | RESERVED|incarnation|version|epoch|log length: nothing is left since
--          | SAME|request_id|body_hash|reservation_id|order_id|code: this request, its current result
--          | HOLDER|request_id|body_hash|reservation_id|order_id|code: the user's other reservation
--          | SOLD_OUT|remaining|incarnation|version|epoch|log length | BODY_CONFLICT
--          | MISSING: no stock, which is not sold out | NOT_OPEN | ENDED | VERSION | CLOSED|state or run_id
-- cost     O(1); sold out 3 commands, reserved 10, and 3 more once somebody was freed; writes only when reserved
-- clock    the server's (in INFO, else TIME), for the opening hours, created_ms and the first next action. A SKU of which
--          nothing is left says so whatever the hour
-- on loss  of the reply: run again, it reads SAME. Of the write (a failover): run_id differs, so nothing
--          is reserved until the SKU is restored from SQL
if #KEYS ~= 8 or #ARGV ~= 9 then return redis.error_reply('BADARGS reserve: want 8 keys and 9 arguments') end
local call, user, request, id, hash = redis.call, ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local quantity = tonumber(ARGV[6])
if not quantity or quantity < 1 or quantity >= 9007199254740992 or quantity % 1 ~= 0 then
  return redis.error_reply('BADARGS reserve: quantity is no whole number of 1..2^53-1')
end

-- A user who is no buyer has no earlier request, unless somebody was freed: then the field is not 0, and every
-- answer asks for one first. What is read of the wrong type fails by itself.
local rid, refusal, freed = call('HGET', KEYS[2], user), nil, true
local s, remaining, server, created
if not rid then
  s = call('HMGET', KEYS[1], 'remaining', 'activity_version', 'stock_epoch', 'incarnation', 'state', 'freed',
    'opens_at_ms', 'closes_at_ms', 'run_id')
  freed = s[6] ~= '0'
  if not (s[1] and s[2] and s[3] and s[4] and s[5] and s[7] and s[8] and s[9]) then
    refusal = 'MISSING'
  else
    remaining = tonumber(s[1])
    if remaining > 0 then
      server = call('INFO', 'server')
      local _, at = string.find(server, 'server_time_usec:', 1, true)
      if at then
        created = string.sub(server, at + 1, at + 13) -- of 16 digits until 2286
      else
        local time = call('TIME')
        created = time[1] .. string.sub('000000' .. time[2], -6, -4)
      end
      local now = tonumber(created)
      if now < tonumber(s[7]) then refusal = 'NOT_OPEN' elseif now >= tonumber(s[8]) then refusal = 'ENDED' end
    end
    if refusal then -- the hours go before the version
    elseif s[2] ~= ARGV[1] then
      refusal = 'VERSION'
    elseif s[5] ~= 'OPEN' then
      refusal = 'CLOSED|state'
    elseif remaining < quantity then
      refusal = 'SOLD_OUT|' .. s[1] .. '|' .. s[4] .. '|' .. s[2] .. '|' .. s[3] .. '|' .. call('LLEN', KEYS[6])
    elseif not string.find(server, 'run_id:' .. s[9], 1, true) then
      refusal = 'CLOSED|run_id'
    end
  end
end
if refusal and not freed then return refusal end

local attempt = '1'
for _ = 1, 2 do
  if rid or freed then
    local seen = call('HGET', KEYS[3], 'body_hash')
    if seen then
      if seen ~= hash then return 'BODY_CONFLICT' end
      local r = call('HMGET', KEYS[3], 'reservation_id', 'order_id', 'code')
      return 'SAME|' .. request .. '|' .. seen .. '|' .. r[1] .. '|' .. (r[2] or '') .. '|' .. r[3]
    end
    local codes = {
      LIVE = 'SECKILL_QUEUED', CREATED = 'ORDER_CREATED', PAID = 'ORDER_PAID',
      RETURNED = 'ORDER_CANCELLED', DUPLICATE = 'DUPLICATE', NO_CAPACITY = 'NO_CAPACITY',
    }
    local record = '^([A-Z_]+)|([^|]*)|([^|]*)|%d+|%d+|([^|]*)|([^|]*)$'
    local own = call('HGET', KEYS[4], id)
    if own then -- this request, whose record has expired
      local state, owner, req, order, body = string.match(own, record)
      if req ~= request or owner ~= user then
        return redis.error_reply('BADARGS reserve: this reservation_id is of another request')
      end
      if body ~= hash then return 'BODY_CONFLICT' end
      return 'SAME|' .. request .. '|' .. body .. '|' .. id .. '|' .. order .. '|' .. codes[state]
    end
    if refusal then return refusal end
    local attempts = not rid and call('HGET', KEYS[7], user)
    if attempts then
      local last
      attempt, last = string.match(attempts, '^(%d+)|(.*)$')
      if tonumber(attempt) > tonumber(ARGV[7]) then rid = last end
    end
    if rid then
      local other = call('HGET', KEYS[4], rid)
      if not other then return 'HOLDER|||' .. rid .. '||' end -- known from SQL alone: a DUPLICATE named it
      local state, _, req, order, body = string.match(other, record)
      return 'HOLDER|' .. req .. '|' .. body .. '|' .. rid .. '|' .. order .. '|' .. codes[state]
    end
  end

  local most, grace, ttl = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
  if not (most and grace and ttl) or most < 1 or grace < 1 or ttl < 1 then
    return redis.error_reply('BADARGS reserve: an argument of 7 to 9 is no number of 1 and more')
  end
  if remaining == quantity then
    local kind = call('TYPE', KEYS[8]).ok
    if kind ~= 'none' and kind ~= 'hash' then return redis.error_reply('WRONGTYPE reserve: key 8 is a ' .. kind) end
  end
  local record = user .. '|' .. request .. '|' .. ARGV[6] .. '|' .. created .. '||' .. hash
  if call('HSETNX', KEYS[4], id, 'LIVE|' .. record) == 1 then
    -- Three keys are met here for the first time. If one is of the wrong type, what was written is taken back.
    -- (%d is exact: numbers are below 2^53 and a long has 64 bits. It costs a third of %.0f.)
    local length, due, noted = redis.pcall('RPUSH', KEYS[6],
      'reserved|' .. user .. '|' .. request .. '|' .. hash .. '|' .. id .. '||SECKILL_QUEUED|' .. attempt .. '|0')
    if type(length) == 'number' then
      due = redis.pcall('ZADD', KEYS[5], string.format('%d', created + grace), id)
      if type(due) == 'number' then
        noted = redis.pcall('HSET', KEYS[3], 'body_hash', hash, 'status', 'QUEUED', 'code', 'SECKILL_QUEUED',
          'reservation_id', id)
      end
    end
    if type(noted) ~= 'number' then
      if type(due) == 'number' then call('ZREM', KEYS[5], id) end
      if type(length) == 'number' then call('RPOP', KEYS[6]) end
      call('HDEL', KEYS[4], id)
      return noted or due or length
    end
    call('PEXPIREAT', KEYS[3], string.format('%d', s[8] + ttl))
    call('HSET', KEYS[2], user, id) -- a new field, as in key 4: the stock's unheld, the one less the other, stands
    call('HINCRBY', KEYS[1], 'remaining', '-' .. ARGV[6])
    if remaining ~= quantity then return 'RESERVED' end

    local epoch = call('HINCRBY', KEYS[1], 'stock_epoch', 1)
    length = call('RPUSH', KEYS[6], 'epoch|||||||0|0')
    epoch, length = string.format('%d', epoch), string.format('%d', length)
    call('HSET', KEYS[8], 'state', 'SOLD_OUT', 'incarnation', s[4], 'activity_version', s[2],
      'stock_epoch', epoch, 'log_length', length)
    return 'RESERVED|' .. s[4] .. '|' .. s[2] .. '|' .. epoch .. '|' .. length
  end
  freed = true -- a reservation has this id already: see whose
end
return redis.error_reply('BADARGS reserve: this reservation_id is of another request')
