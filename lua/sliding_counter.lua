-- sliding_counter  v1
-- Counts in two windows and weighs the older one by how much of it the sliding window still covers.
-- KEYS[1]  any limiter key   hash: start_ms (of the newer window), now, before, period
-- ARGV[1]  limit: tokens per period, 0 closes
-- ARGV[2]  period_ms, > 0; limit x period_ms <= 2^53
-- ARGV[3]  unused (the capacity is the limit)
-- ARGV[4]  cost in tokens, > 0
-- returns  {code, remaining_milli_tokens, retry_after_ms, redis_now_ms}
--          code 1 allow | 0 limited | -1 bad arguments | -2 cost > limit; retry_after_ms -1: no wait helps
-- cost     O(1), at most 4 commands; a refusal writes nothing unless the policy has changed
-- clock    TIME; windows never go back, a step back waits in the newest one
-- on loss  a lost reply is a charge; a lost key forgets at most two windows, so it lives for three

local function whole(s)
  if not s or #s > 16 or not string.match(s, '^%d+$') then return nil end
  local n = tonumber(s)
  if n > 2 ^ 53 then return nil end
  return n
end
local function text(n) return string.format('%.0f', n) end -- tostring loses digits beyond 10^14

local limit, period, cost = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[4])
if #KEYS ~= 1 or #ARGV ~= 4 or not (limit and period and cost) or period < 1 or cost < 1
  or limit * 1000 > 2 ^ 53 or limit * period > 2 ^ 53 then
  return {-1, 0, 0, 0}
end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local stored = redis.call('HMGET', KEYS[1], 'start_ms', 'now', 'before', 'period')
local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
if limit == 0 then return {0, 0, -1, clock} end
if cost > limit then return {-2, 0, -1, clock} end

local start, count, before = clock - clock % period, 0, 0
local changed = false
if stored[1] then
  local was, p = tonumber(stored[1]), tonumber(stored[4])
  if p ~= period then
    -- Another window length: all that either window may still cover counts as now.
    if clock < was + 2 * math.max(p, period) then
      changed = true
      count = math.min(limit, tonumber(stored[2]) + tonumber(stored[3]))
      local at = math.max(clock, was)
      start = at - at % period
    end
  elseif was >= start then -- the same window, or the clock stepped back
    start, count, before = was, tonumber(stored[2]), tonumber(stored[3])
  elseif was == start - period then
    before = tonumber(stored[2])
  end
end
local into = math.max(0, clock - start)

local function keep(count)
  redis.call('HSET', KEYS[1], 'start_ms', text(start), 'now', text(count), 'before', text(before), 'period', text(period))
  redis.call('PEXPIRE', KEYS[1], text(math.min(3 * period + math.max(0, start - clock), 10 ^ 12)))
end

-- before x (period - into) / period + count + cost <= limit, without a division
local used = before * (period - into) + count * period
if used + cost * period > limit * period then
  if changed then keep(count) end -- from here on the new window counts
  local at -- ms into this window, or period and more: into the next one
  if count + cost <= limit then
    at = period - math.floor((limit - count - cost) * period / before)
  else
    at = 2 * period - math.floor((limit - cost) * period / count)
  end
  return {0, math.floor(math.max(0, limit * period - used) / period * 1000), math.max(1, start + at - clock), clock}
end
keep(count + cost)
return {1, math.floor((limit * period - used - cost * period) / period * 1000), 0, clock}
