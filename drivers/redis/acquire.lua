-- acquire: grants at once, or else queues, if it may wait. The failing try is
-- the enqueueing. Asked again with the token of a live grant or of a ticket, it
-- answers the same again.
-- ARGV: token, ttl, wait (1 or 0), slots, span, tail, number ('' or the one that
-- the ticket had before it was lost).
-- Answers {1, fence, slot, resized, span} if granted; {2, number, position, left,
-- resized} if queued; {0, holder...} if busy; {-1} if the token is barred.
local token, ttl, wait, slots, span, tail, number = unpack(ARGV)
local barred = bar(token)
clock()

-- resize makes the pool as large as this request says, and returns what it was
-- before, if it is in use.
local function resize(n)
  local was = size or 1
  if n == was then return 0 end
  local used = call('exists', H, Q) > 0 or (size and call('zcard', U) > 0)
  top = top or 0
  call('hset', P, 'size', n, 'top', top)
  call('zremrangebyscore', N, n, '+inf')
  for slot = was, math.min(n - 1, top) do
    if call('hexists', P, slot) == 0 then call('zadd', N, slot, slot) end
  end
  size = n
  return used and was or 0
end

local function enqueue()
  local last = tonumber(call('zrange', Q, -1, -1, 'withscores')[2])
  local at = tonumber(number) or math.max(us, (last or 0) + 1)
  call('zadd', Q, 'nx', format('%.0f', at), token)
  call('hset', T, token, format('1 %.0f %s %s %s', ms, span, slots, tail))
  call('pexpire', Q, 2 * gone)
  call('pexpire', T, 2 * gone)
end

open()
if call('exists', barred) == 1 or call('hexists', X, token) == 1 then return {-1} end
local resized = resize(tonumber(slots))
settle({[token] = true})

local slot, v = find(token)
if slot then
  prolong(slot, ttl)
  keep()
  local first, had = string.match(v, '^{"fence":(%d+),"span":(%d+)', #token + 1)
  return {1, tonumber(first), slot, resized, tonumber(had)}
end

slot = vacant()
if slot then
  local first = fence()
  take(slot, token, first, ttl, span, tail)
  keep()
  return {1, first, slot, resized, span + 0}
end

keep()
if wait == '0' then return {0, unpack(values(16))} end
enqueue()
return {2, tonumber(call('zscore', Q, token)), call('zrank', Q, token) + 1, left(), resized}
