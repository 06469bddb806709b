-- fleet_high_water  v1
-- Raises the greatest rule version that any instance has had in force, and returns it.
-- KEYS[1]  sec:rules:high_water   string: version
-- ARGV[1]  version, 0..10^15; 0 reads only
-- returns  {greatest version}, 0 when there is none
-- cost     O(1), at most 2 commands; writes only when it rises
-- clock    none
-- on loss  the next report raises it again; there is no expiry, an older bundle would come in after it

if #KEYS ~= 1 or #ARGV ~= 1 or #ARGV[1] > 15 or not string.match(ARGV[1], '^%d+$') then
  return redis.error_reply('BADARGS fleet_high_water wants 1 key and a version')
end
local version = tonumber(ARGV[1])
local stored = tonumber(redis.call('GET', KEYS[1]) or '0')
if version <= stored then return {stored} end
redis.call('SET', KEYS[1], ARGV[1])
return {version}
