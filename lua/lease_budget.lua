-- lease_budget  v1
-- Settles a budget at its old rate, then gives it a new rate and burst and publishes both.
-- KEYS[1]  rl:lease:<tag>        hash: see lease_ask
-- KEYS[2]  sec:admission:<tag>   hash: policy_version, mode, rate, burst, binding, term, emitted_ms
-- ARGV[1]  rate x 1000, 0..10^12 (0 closes)
-- ARGV[2]  burst, tokens, 0..4 x 10^9
-- ARGV[3]  term (fence): a lower one than stored changes nothing
-- ARGV[4]  policy_version
-- ARGV[5]  mode
-- ARGV[6]  rate as text, as it is published
-- ARGV[7]  binding: the name of the term that binds
-- ARGV[8]  emitted_ms
-- ARGV[9]  ttl_ms of both keys, renewed by every budget
-- returns  {1, term} done | {0, stored term} fenced off
-- cost     O(1), at most 9 commands
-- clock    TIME; a step back re-anchors without credit
-- on loss  the leader writes again within its period; until then the old rate holds, and a lost hash grants nothing

if #KEYS ~= 2 or #ARGV ~= 9 then
  return redis.error_reply('BADARGS lease_budget wants 2 keys and 9 arguments')
end
local function whole(s, least, most)
  if #s > 15 or not string.match(s, '^%d+$') then return nil end
  local n = tonumber(s)
  if n < least or n > most then return nil end
  return n
end
local rate = whole(ARGV[1], 0, 10 ^ 12)
local burst = whole(ARGV[2], 0, 4 * 10 ^ 9)
local term = whole(ARGV[3], 0, 10 ^ 15)
local ttl = whole(ARGV[9], 1, 10 ^ 12)
if not (rate and burst and term and ttl and whole(ARGV[4], 0, 10 ^ 15) and whole(ARGV[8], 0, 10 ^ 15)) then
  return redis.error_reply('BADARGS lease_budget: an argument is out of range')
end
-- Redis before 5 refuses a write after TIME unless effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local function text(n) return string.format('%.0f', n) end -- tostring loses digits beyond 10^14

local old = redis.call('HMGET', KEYS[1], 'rate_milli', 'burst', 'level_micro', 'last_ms', 'run_id', 'term')
local published = redis.call('HGET', KEYS[2], 'term')
local fence = math.max(tonumber(old[6] or '0'), tonumber(published or '0'))
if term < fence then return {0, fence} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''

local level = 0
if old[1] and old[5] == run then
  local was, full, last = tonumber(old[1]), tonumber(old[2]) * 1000000, tonumber(old[4])
  level = tonumber(old[3])
  if now > last and was > 0 and level < full then
    local ms = math.min(now - last, math.ceil((full - level) / was)) -- bounds the product
    level = math.min(full, level + ms * was)
  end
end
level = math.min(level, burst * 1000000)

redis.call('HSET', KEYS[1], 'rate_milli', ARGV[1], 'burst', ARGV[2], 'level_micro', text(level),
  'last_ms', text(now), 'run_id', run, 'term', text(term))
redis.call('PEXPIRE', KEYS[1], ARGV[9])
redis.call('HSET', KEYS[2], 'policy_version', ARGV[4], 'mode', ARGV[5], 'rate', ARGV[6], 'burst', ARGV[2],
  'binding', ARGV[7], 'term', text(term), 'emitted_ms', ARGV[8])
redis.call('PEXPIRE', KEYS[2], ARGV[9])
return {1, term}
