-- renew: makes plain grants of many keys live for their ttl, and never for less
-- than they would anyway. It needs no repair: a key whose holder is there has
-- nothing to mend, and one whose holder is not is asked about again by confirm.
-- KEYS: holder keys. ARGV, for each: token, ttl (0: only look).
-- Answers, for each: 1 if it lives, 0 if confirm has to look.
local out = {}
for i, key in ipairs(KEYS) do
  local token, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local mine = redis.pcall('getrange', key, 0, #token - 1) == token
  if mine and ttl > 0 and redis.call('pttl', key) < ttl then redis.call('pexpire', key, ttl) end
  out[i] = mine and 1 or 0
end
return out
