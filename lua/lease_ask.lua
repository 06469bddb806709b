-- lease_ask  v1
-- Refills one budget by server time and grants an instance its slice of it.
-- KEYS[1]  rl:lease:{a:<a>:s:<s>} or rl:lease:{a:<a>}   hash:
--          rate_milli (tokens per 1000 s), burst (tokens), level_micro (10^-6 tokens), last_ms, run_id, term,
--          i:<instance> = "weight_milli seq last_ask_ms granted retry_after_ms" of who asked within two leases
-- ARGV[1]  instance id
-- ARGV[2]  sequence of the ask, rising
-- ARGV[3]  tokens wanted, 1..10^9
-- ARGV[4]  weight x 1000, 1..10^6
-- ARGV[5]  lease_ms, 1..60000
-- ARGV[6]  ramp x 1000, 1..1000: scales the grant of an instance that has just started
-- ARGV[7]  instances remembered at most; one more is refused, never forgotten in its place
-- returns  {code, granted, retry_after_ms, rate_milli, now_ms}, code 1 answered | 2 the same answer again |
--          0 an older sequence than the last: nothing granted
-- cost     O(instances within two leases), at most 7 commands
-- clock    TIME; a step back re-anchors without credit, a step forward credits at most one burst
-- on loss  a lost reply is a spent grant; a lost hash is level 0 and waits for the leader's next budget

if #KEYS ~= 1 or #ARGV ~= 7 then
  return redis.error_reply('BADARGS lease_ask wants 1 key and 7 arguments')
end
local function whole(s, least, most)
  if #s > 15 or not string.match(s, '^%d+$') then return nil end
  local n = tonumber(s)
  if n < least or n > most then return nil end
  return n
end
local me = ARGV[1]
local seq = whole(ARGV[2], 1, 10 ^ 15)
local want = whole(ARGV[3], 1, 10 ^ 9)
local weight = whole(ARGV[4], 1, 10 ^ 6)
local lease = whole(ARGV[5], 1, 60000)
local ramp = whole(ARGV[6], 1, 1000)
local most = whole(ARGV[7], 1, 100000)
if me == '' or #me > 128 or not (seq and want and weight and lease and ramp and most) then
  return redis.error_reply('BADARGS lease_ask: an argument is out of range')
end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local function text(n) return string.format('%.0f', n) end -- tostring loses digits beyond 10^14

local stored = redis.call('HGETALL', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if #stored == 0 then return {1, 0, lease, 0, now} end

local bucket, others = {}, {}
for i = 1, #stored, 2 do
  if string.sub(stored[i], 1, 2) == 'i:' then
    others[#others + 1] = i
  else
    bucket[stored[i]] = stored[i + 1]
  end
end
local rate = tonumber(bucket.rate_milli or '0')
local full = tonumber(bucket.burst or '0') * 1000000
local level = tonumber(bucket.level_micro or '0')
local last = tonumber(bucket.last_ms or '0')

-- Who asked within two leases, and what they are owed since: weight x ms.
local mine, count, weights, owed = nil, 0, weight, 0
local gone, changed = {}, {}
for _, i in ipairs(others) do
  local w, s, at, granted, retry = string.match(stored[i + 1], '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  w, at = tonumber(w), tonumber(at)
  if at > now and stored[i] ~= 'i:' .. me then -- the clock went back: nobody is owed a time that has not been
    changed[#changed + 1] = stored[i]
    changed[#changed + 1] = text(w) .. ' ' .. s .. ' ' .. text(now) .. ' ' .. granted .. ' ' .. retry
  end
  at = math.min(at, now)
  if stored[i] == 'i:' .. me then
    -- after two leases even an instance's own sequence is forgotten
    if now - at <= 2 * lease then
      mine = {seq = tonumber(s), at = at, granted = tonumber(granted), retry = tonumber(retry)}
    end
  elseif now - at > 2 * lease then
    gone[#gone + 1] = stored[i]
  else
    count = count + 1
    weights = weights + w
    owed = owed + w * math.min(lease, now - at)
  end
end
if mine and seq == mine.seq then return {2, mine.granted, mine.retry, rate, now} end
if mine and seq < mine.seq then return {0, 0, lease, rate, now} end
if not mine and count >= most then return {1, 0, lease, rate, now} end

-- rate_milli x ms is micro-tokens exactly: nothing is rounded, however slow the rate.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
if bucket.run_id ~= run then
  level = 0 -- another primary: what the old one granted last may be missing here
elseif now > last and rate > 0 and level < full then
  local ms = math.min(now - last, math.ceil((full - level) / rate)) -- bounds the product
  level = math.min(full, level + ms * rate)
end

local since = lease
if mine then since = math.min(lease, now - mine.at) end
local own = weight * since / weights * rate
owed = (owed + weight * since) / weights * rate
local cap = math.max(1, math.ceil((own + math.max(0, level - owed)) / 1000000 - 1e-9))
cap = math.max(1, math.floor(cap * ramp / 1000))
local granted = math.min(want, cap, math.floor(level / 1000000))
level = level - granted * 1000000

local retry = 0
if granted == 0 then
  retry = 1000 -- a closed budget is looked at again
  if rate > 0 then retry = math.max(1, math.ceil((1000000 - level) / rate)) end
end

redis.call('HSET', KEYS[1], 'level_micro', text(level), 'last_ms', text(now), 'run_id', run, 'i:' .. me,
  text(weight) .. ' ' .. text(seq) .. ' ' .. text(now) .. ' ' .. text(granted) .. ' ' .. text(retry))
for i = 1, #changed, 200 do
  redis.call('HSET', KEYS[1], unpack(changed, i, math.min(i + 199, #changed)))
end
for i = 1, #gone, 200 do
  redis.call('HDEL', KEYS[1], unpack(gone, i, math.min(i + 199, #gone)))
end
return {1, granted, retry, rate, now}
