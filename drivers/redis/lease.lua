-- lease reports whether a value with this time to live is a lease, of this
-- package or of redislock without metadata, and not what somebody else keeps at
-- the key: a token of 22 characters, at its end or before JSON. A lease expires;
-- in its last millisecond 0 is left.
local function lease(v, life)
  return life >= 0 and string.find(v, '^[%w_-]+', 1) and
    select(2, string.find(v, '^[%w_-]+')) == 22 and (#v == 22 or string.sub(v, 23, 23) == '{')
end
