-- leaky_bucket  v1
-- Pours into a bucket that leaks by server time and refuses what would spill: a meter, it never waits.
-- KEYS[1]  any limiter key   hash: level (of 1/period of a token), ts_ms, rate ("tokens/period_ms")
-- ARGV[1]  tokens that leak per period, 0 closes
-- ARGV[2]  period_ms, > 0; tokens x period_ms <= 2^53
-- ARGV[3]  capacity in tokens; x 1000 and x period_ms <= 2^53
-- ARGV[4]  cost in tokens, > 0
-- returns  {code, remaining_milli_tokens, retry_after_ms, redis_now_ms}
--          code 1 allow | 0 limited | -1 bad arguments | -2 cost > capacity; retry_after_ms -1: no wait helps
-- cost     O(1), at most 4 commands; a refusal writes nothing unless the policy has changed
-- clock    TIME; a step back leaks nothing until the clock is there again
-- on loss  a lost reply is a charge; a lost key is an empty bucket, so it lives twice as long as it takes to empty

local function whole(s)
  if not s or #s > 16 or not string.match(s, '^%d+$') then return nil end
  local n = tonumber(s)
  if n > 2 ^ 53 then return nil end
  return n
end
local function text(n) return string.format('%.0f', n) end -- tostring loses digits beyond 10^14

local tokens, period, capacity, cost = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4])
if #KEYS ~= 1 or #ARGV ~= 4 or not (tokens and period and capacity and cost) or period < 1 or cost < 1
  or capacity * 1000 > 2 ^ 53 or capacity * period > 2 ^ 53 or tokens * period > 2 ^ 53 then
  return {-1, 0, 0, 0}
end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local stored = redis.call('HMGET', KEYS[1], 'level', 'ts_ms', 'rate')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if cost > capacity then return {-2, 0, -1, now} end
if tokens == 0 then return {0, 0, -1, now} end

-- One token is `period` units and every ms leaks `tokens` of them: all exact.
local level, since = 0, now
local changed = false
if stored[1] then
  level, since = tonumber(stored[1]), tonumber(stored[2])
  -- What has passed leaked at the rate of then: a change of policy empties nothing.
  local n, p = string.match(stored[3], '^(%d+)/(%d+)$')
  n, p = tonumber(n), tonumber(p)
  if now > since then
    local ms = now - since
    if n > 0 then ms = math.min(ms, math.ceil(level / n)) end -- bounds the product
    level = math.max(0, level - ms * n)
    since = now
  end
  changed = n ~= tokens or p ~= period
  if p ~= period then level = math.ceil(level / p * period) end
end

local function keep()
  redis.call('HSET', KEYS[1], 'level', text(level), 'ts_ms', text(since), 'rate', text(tokens) .. '/' .. text(period))
  local ttl = 2 * math.ceil(capacity / tokens * period) + 1000 + math.max(0, since - now)
  redis.call('PEXPIRE', KEYS[1], text(math.min(ttl, 10 ^ 12)))
end

local over = level + cost * period - capacity * period
if over > 0 then
  if changed then keep() end -- from here on the new rate counts
  local room = math.max(0, capacity * period - level)
  return {0, math.floor(room / period * 1000), math.ceil(over / tokens) + math.max(0, since - now), now}
end
level = level + cost * period
keep()
return {1, math.floor((capacity * period - level) / period * 1000), 0, now}
