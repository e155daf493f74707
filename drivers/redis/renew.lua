-- renew: makes plain grants of many keys live for their ttl from now. It needs no
-- repair: a key whose holder is there has nothing to mend. What else there is to
-- do is left to confirm: where the holder is not there, where its ttl was
-- changed, where a life so short has become shorter that waiters have to know,
-- and where a pool is kept beside the holder.
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
