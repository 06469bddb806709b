-- token_bucket  v1
-- Takes tokens from a bucket that fills by server time, in whole numbers.
-- KEYS[1]  any limiter key   hash: tokens_milli, ts_ms, rest (of a thousandth, in 1/period), rate ("tokens/period_ms")
-- ARGV[1]  tokens per period, 0 closes
-- ARGV[2]  period_ms, > 0; tokens x 1000 x period_ms <= 2^53
-- ARGV[3]  capacity in tokens; x 1000 <= 2^53
-- ARGV[4]  cost in tokens, > 0
-- returns  {code, remaining_milli_tokens, retry_after_ms, redis_now_ms}
--          code 1 allow | 0 limited | -1 bad arguments | -2 cost > capacity; retry_after_ms -1: no wait helps
-- cost     O(1), at most 4 commands; a refusal writes nothing unless the policy has changed
-- clock    TIME; a step back credits nothing until the clock is there again
-- on loss  a lost reply is a charge; a lost key is a full bucket, so it lives twice as long as it takes to fill

local function whole(s)
  if not s or #s > 16 or not string.match(s, '^%d+$') then return nil end
  local n = tonumber(s)
  if n > 2 ^ 53 then return nil end
  return n
end
local function text(n) return string.format('%.0f', n) end -- tostring loses digits beyond 10^14

local tokens, period, capacity, cost = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4])
if #KEYS ~= 1 or #ARGV ~= 4 or not (tokens and period and capacity and cost) or period < 1 or cost < 1
  or capacity * 1000 > 2 ^ 53 or tokens * 1000 * period > 2 ^ 53 then
  return {-1, 0, 0, 0}
end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local stored = redis.call('HMGET', KEYS[1], 'tokens_milli', 'ts_ms', 'rest', 'rate')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if cost > capacity then return {-2, 0, -1, now} end
if tokens == 0 then return {0, 0, -1, now} end

local full = capacity * 1000
local level, since, rest = full, now, 0
local changed = false
if stored[1] then
  level, since, rest = tonumber(stored[1]), tonumber(stored[2]), tonumber(stored[3] or '0')
  -- What has passed was earned at the rate of then: a change of policy hands out nothing.
  local n, p = string.match(stored[4] or '', '^(%d+)/(%d+)$')
  n, p = tonumber(n or tokens), tonumber(p or period)
  local ms = now - since
  if ms > 0 then
    local periods = math.floor(ms / p)
    if n > 0 and periods * n >= capacity then -- far more than it can hold: no product to overflow
      level, rest = full, 0
    else
      local parts = (ms - periods * p) * n * 1000 + rest
      local milli = math.floor(parts / p)
      level, rest = level + periods * n * 1000 + milli, parts - milli * p
    end
    since = now
  end
  changed = n ~= tokens or p ~= period
  if changed then rest = 0 end
  if level >= full then level, rest = full, 0 end
end

local function keep()
  redis.call('HSET', KEYS[1], 'tokens_milli', text(level), 'ts_ms', text(since), 'rest', text(rest),
    'rate', text(tokens) .. '/' .. text(period))
  local ttl = 2 * math.ceil(capacity / tokens * period) + 1000 + math.max(0, since - now)
  redis.call('PEXPIRE', KEYS[1], text(math.min(ttl, 10 ^ 12)))
end

local need = cost * 1000 - level
if need > 0 then
  if changed then keep() end -- from here on the new rate counts
  -- need thousandths at tokens x 1000 a period, less what has begun; split so that no product passes 2^53
  local per = tokens * 1000
  local periods = math.floor(need / per)
  local wait = periods * period + math.ceil(((need - periods * per) * period - rest) / per)
  return {0, level, math.max(1, wait) + math.max(0, since - now), now}
end
level = level - cost * 1000
keep()
return {1, level, 0, now}
