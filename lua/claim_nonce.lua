-- claim_nonce  v1
-- Binds a ticket's nonce to the first request_id that presents it.
-- KEYS[1]  rl:replay:{u:<user>}:<nonce>      string: request_id
-- KEYS[2]  rl:req:{u:<user>}:<request_id>    string: activity|sku|body hash
-- ARGV[1]  request_id
-- ARGV[2]  activity|sku|body hash
-- ARGV[3]  ttl_ms (integer > 0: activity close + buffer)
-- returns  {1} first | {2} same | {3, first request_id} other request | {4} other body
-- cost     O(1), at most 4 commands; writes only on first
-- clock    none
-- on loss  a replayed ticket reads as first; reserve still refuses a second order

if #KEYS ~= 2 or #ARGV ~= 3 then
  return redis.error_reply('BADARGS claim_nonce wants 2 keys and 3 arguments')
end
local request, body, ttl = ARGV[1], ARGV[2], ARGV[3]
if request == '' or body == '' or #ttl > 13 or not string.match(ttl, '^[1-9]%d*$') then
  return redis.error_reply('BADARGS claim_nonce: empty request_id or body, or ttl_ms out of range')
end

local first = redis.call('GET', KEYS[1])
local seen = redis.call('GET', KEYS[2])
if first and first ~= request then return {3, first} end
if seen and seen ~= body then return {4} end
-- A nonce that is known while its request is not lost half of its memory: the
-- reservation compares the body again, so this stays "same".
if first then return {2} end

redis.call('SET', KEYS[1], request, 'PX', ttl)
redis.call('SET', KEYS[2], body, 'PX', ttl)
return {1}
