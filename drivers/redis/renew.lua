-- renew: makes plain grants of many keys live for their ttl from now. It does no
-- repair: a key with its holder needs none. Other grants are left to confirm: a grant
-- that is not there, one whose TTL was changed, one whose short TTL becomes shorter,
-- which waiters have to learn, and one with a pool.
-- KEYS: holder keys. ARGV, for each: token, ttl (0: only look), rev.
-- Answers, for each: 1 if it lives, 0 if confirm has to look.
local out = {}
for i, key in ipairs(KEYS) do
  local token, ttl, rev = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
  local v = redis.pcall('getrange', key, 0, 127)
  local mine = type(v) == 'string' and string.sub(v, 1, #token) == token
  local had, marks
  if mine then had, marks = string.match(v, '^ 3 %d+ %d+ (%d+)(%a*)', #token + 1) end
  if marks and string.find(marks, 'b', 1, true) then mine = false end
  if mine and ttl > 0 then
    mine = (had or '0') == rev and
      (ttl >= window or redis.call('pttl', key) <= ttl)
    if mine then redis.call('pexpire', key, ttl) end
  end
  out[i] = mine and 1 or 0
end
return out
