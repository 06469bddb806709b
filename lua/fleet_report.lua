-- fleet_report  v1
-- Writes one instance's line. A full registry refuses newcomers and forgets nobody: a dead instance's last counts are kept.
-- KEYS[1]  sec:instances   hash: instance id, or id@boot -> JSON
-- ARGV[1]  instance id, or id@boot, at most 192 bytes
-- ARGV[2]  line, JSON, at most 16 KiB
-- ARGV[3]  lines at most
-- ARGV[4]  ttl_ms of the whole registry, renewed by every report
-- returns  {1} written | {0} full
-- cost     O(1), at most 4 commands
-- clock    none
-- on loss  the line is a second old; after five the instance reads as dead

if #KEYS ~= 1 or #ARGV ~= 4 then
  return redis.error_reply('BADARGS fleet_report wants 1 key and 4 arguments')
end
local most, ttl = tonumber(ARGV[3]), tonumber(ARGV[4])
if ARGV[1] == '' or #ARGV[1] > 192 or #ARGV[2] > 16384 or not most or most < 1 or not ttl or ttl < 1 then
  return redis.error_reply('BADARGS fleet_report: an argument is out of range')
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= most then return {0} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1}
