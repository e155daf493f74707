-- The short way of acquire, whose arguments and answer acquire.lua explains: a
-- plain lock that nobody waits for.
local token, ttl, wait, slots, span, tail, number = unpack(ARGV)
local barred = bar(token)

clock()
if slots == '1' and call('exists', Q, P, X, barred) == 0 then
  local first = fence()
  if call('set', H, value(token, first, span, tail), 'nx', 'px', ttl) then
    reserve(first, span)
    return {1, first, 0, 0, span + 0}
  end
end
