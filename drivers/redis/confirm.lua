-- confirm: renews grants of one lock, of any slot, and says of what is lost why.
-- ARGV, for each grant: token, ttl (0: only look), exact (1: a grant that was
-- pushed, and that nobody renews, shall live for exactly its ttl).
-- Answers, for each: {1, fence, slot} or {0, reason}.
clock()
open()
settle({})

-- settled ends the window of a pushed grant, once: the mark goes with it.
local function settled(slot, v, ttl)
  local plain, n = string.gsub(v, ',"pushed":1', '', 1)
  if n == 0 then return prolong(slot, ttl) end
  if slot == 0 then return call('set', H, plain, 'px', ttl) end
  call('hset', P, slot, plain)
  call('zadd', U, format('%.0f', ms + ttl), slot)
end

local out = {}
for i = 1, #ARGV, 3 do
  local token, ttl, exact = unpack(ARGV, i, i + 2)
  local slot, v = find(token)
  if slot then
    if exact == '1' then settled(slot, v, ttl) elseif ttl ~= '0' then prolong(slot, ttl) end
    out[#out + 1] = {1, tonumber(string.match(v, '^{"fence":(%d+)', #token + 1)), slot}
  else
    out[#out + 1] = {0, call('hget', X, token) or ''}
  end
end
keep()
return out
