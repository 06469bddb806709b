-- sliding_log  v1
-- Remembers every token of the last period: exact in every window, for small limits.
-- KEYS[1]  any limiter key   zset: "<ms>-<n>" by ms, one member a token
-- ARGV[1]  limit: tokens per period, 0 closes; at most 10,000
-- ARGV[2]  period_ms, > 0
-- ARGV[3]  unused (the capacity is the limit)
-- ARGV[4]  cost in tokens, > 0
-- returns  {code, remaining_milli_tokens, retry_after_ms, redis_now_ms}
--          code 1 allow | 0 limited | -1 bad arguments | -2 cost > limit; retry_after_ms -1: no wait helps
-- cost     O(cost + expired tokens), both at most the limit; at most 7 commands
-- clock    TIME; tokens are never dated before the last one
-- on loss  a lost reply is a charge; a lost key forgets at most one window, so it lives for two

local function whole(s)
  if not s or #s > 16 or not string.match(s, '^%d+$') then return nil end
  local n = tonumber(s)
  if n > 2 ^ 53 then return nil end
  return n
end
local function text(n) return string.format('%.0f', n) end -- tostring loses digits beyond 10^14

local limit, period, cost = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[4])
if #KEYS ~= 1 or #ARGV ~= 4 or not (limit and period and cost) or period < 1 or period > 10 ^ 12 or cost < 1 or limit > 10000 then
  return {-1, 0, 0, 0}
end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local last = redis.call('ZRANGE', KEYS[1], -1, -1)[1]
local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
if limit == 0 then return {0, 0, -1, clock} end
if cost > limit then return {-2, 0, -1, clock} end

local now, number = clock, 0
if last then
  local ms, n = string.match(last, '^(%d+)-(%d+)$')
  now = math.max(now, tonumber(ms))
  if now == tonumber(ms) then number = tonumber(n) end
end
-- A token counts in (now - period, now].
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - period))
local count = redis.call('ZCARD', KEYS[1])
if count + cost > limit then
  -- room comes when the oldest of those in the way leave
  local at = count + cost - limit - 1
  local oldest = redis.call('ZRANGE', KEYS[1], at, at, 'WITHSCORES')[2]
  return {0, math.max(0, limit - count) * 1000, math.max(1, tonumber(oldest) + period - clock), clock}
end
for first = 1, cost, 1000 do
  local members = {}
  for i = first, math.min(first + 999, cost) do
    members[#members + 1] = text(now)
    members[#members + 1] = text(now) .. '-' .. string.format('%05.0f', number + i) -- equal scores sort by text
  end
  redis.call('ZADD', KEYS[1], unpack(members))
end
redis.call('PEXPIRE', KEYS[1], text(math.min(2 * period + (now - clock), 10 ^ 12)))
return {1, (limit - count - cost) * 1000, 0, clock}
