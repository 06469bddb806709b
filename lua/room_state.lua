-- room_state  v2
-- Publishes the waiting room's state. Neither the leader's term nor a watermark ever goes back, and a draw is sealed
-- once: another seal is refused whatever its term, for a leader that was paused may have sealed before its successor.
-- KEYS[1]  room:{a:<a>}:state   hash: term, doc (JSON), seal, w:<lane> = watermark
-- ARGV[1]  term (fence)
-- ARGV[2]  the state as JSON
-- ARGV[3]  seal: what the draw covers, '' before it is sealed
-- ARGV[4]  lane, ARGV[5] its watermark, ... in pairs, at most 64 lanes
-- returns  {1} done | {0, 'term', stored term} fenced off | {0, 'seal', stored seal} sealed otherwise
--          | {0, lane, stored watermark} it would go back
-- cost     O(lanes), 2 commands
-- clock    none
-- on loss  the leader writes again; pages keep the last state they read. There is no expiry, the key goes with the activity

if #KEYS ~= 1 or #ARGV < 3 or #ARGV > 131 or #ARGV % 2 ~= 1 then
  return redis.error_reply('BADARGS room_state wants 1 key, 3 arguments and at most 64 pairs')
end
local function whole(s)
  if #s > 16 or not string.match(s, '^%d+$') or tonumber(s) >= 2 ^ 53 then return nil end
  return tonumber(s)
end
local term = whole(ARGV[1])
if not term or ARGV[2] == '' or #ARGV[3] > 256 then
  return redis.error_reply('BADARGS room_state: term or document')
end
local offered = {}
for i = 4, #ARGV, 2 do
  offered[ARGV[i]] = whole(ARGV[i + 1])
  if ARGV[i] == '' or #ARGV[i] > 64 or not offered[ARGV[i]] then
    return redis.error_reply('BADARGS room_state: a lane or its watermark')
  end
end

local stored = redis.call('HGETALL', KEYS[1])
for i = 1, #stored, 2 do
  if stored[i] == 'term' and term < tonumber(stored[i + 1]) then
    return {0, 'term', stored[i + 1]}
  end
  if stored[i] == 'seal' and stored[i + 1] ~= '' and stored[i + 1] ~= ARGV[3] then
    return {0, 'seal', stored[i + 1]}
  end
end
for i = 1, #stored, 2 do
  if string.sub(stored[i], 1, 2) == 'w:' then
    local lane = string.sub(stored[i], 3)
    -- a lane that is left out would go back to nothing
    if (offered[lane] or -1) < tonumber(stored[i + 1]) then return {0, lane, stored[i + 1]} end
  end
end
local set = {'term', ARGV[1], 'doc', ARGV[2], 'seal', ARGV[3]}
for i = 4, #ARGV, 2 do
  set[#set + 1] = 'w:' .. ARGV[i]
  set[#set + 1] = ARGV[i + 1]
end
redis.call('HSET', KEYS[1], unpack(set))
return {1}
