-- put_activity  v1
-- Stores an activity's document unless a greater version is there. The same version again
-- replaces it: an activity ends without a new one.
-- KEYS[1]  sec:activity:{a:<activity>} hash: version, document
-- ARGV[1]  version, ARGV[2] document (JSON)
-- returns  {1} stored | {0, version} a greater one is there
-- cost     O(1), at most 3 commands
-- clock    none
-- on loss  run again
if #KEYS ~= 1 or #ARGV ~= 2 then return redis.error_reply('BADARGS put_activity: want 1 key and 2 arguments') end
local version = tonumber(ARGV[1])
if not version or version < 1 or version >= 9007199254740992 or version ~= math.floor(version) then
  return redis.error_reply('BADARGS put_activity: version is no whole number of 1..2^53-1')
end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then return redis.error_reply('WRONGTYPE put_activity: key 1 is a ' .. kind) end

local stored = redis.call('HGET', KEYS[1], 'version')
if stored and tonumber(stored) > version then return {0, tonumber(stored)} end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'document', ARGV[2])
return {1}
