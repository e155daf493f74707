-- acquire: grants at once, or else queues, if it may wait. The failing try is
-- the enqueueing. Asked again with the token of a live grant or of a ticket, it
-- answers the same again.
-- ARGV: token, ttl, wait (1 or 0), slots, span, tail, number ('' or the one that
-- the ticket had before it was lost).
-- Answers {1, fence, slot, resized, span} if granted; {2, number, position, left,
-- resized} if queued; {0, {slot, left, value, ...}} if busy; {-1} if the token is
-- barred; {-2, {...}} if the queue is full.
local token, ttl, wait, slots, span, tail, number = unpack(ARGV)
clock()

-- resize makes the pool as large as this request says, and returns what it was
-- before, if it is in use.
local function resize(n)
  local was = size or 1
  if n == was then return 0 end
  local used = call('exists', H) + call('exists', Q) > 0 or (size and call('zcount', S, taken, '+inf') > 0)
  top = top or 0
  resized(n)
  call('zremrangebyscore', S, n, '(' .. taken)
  for slot = was, math.min(n - 1, top) do
    if call('hexists', L, 's' .. slot) == 0 then call('zadd', S, slot, slot) end
  end
  return used and was or 0
end

-- enqueue returns false if the queue is full. A ticket that the server has lost
-- comes back to its place.
local function enqueue()
  if number == '' and call('zcard', Q) >= room and not call('zscore', Q, token) then return false end -- L10
  local last = tonumber(call('zrange', Q, -1, -1, 'withscores')[2])
  local at = tonumber(number) or math.max(us, (last or 0) + 1)
  call('zadd', Q, 'nx', format('%.0f', at), token)
  call('hset', L, token, format('2 %s %s %s', span, slots, tail))
  call('zadd', D, format('%.0f', ms + stale), token, format('%.0f', far + ms), 'seen')
  return true
end

open()
call('zadd', D, 'xx', 0, '') -- fails on a full server: only the queue is served there. L21
if barred(token) then return {-1} end
local before = resize(tonumber(slots))
settle({[token] = true})
if alien then other(alien) end

local slot, v = find(token)
if slot then
  prolong(slot, v, ttl, 0)
  keep()
  local first, had = string.match(v, '^{"v":2,"fence":(%d+),"span":(%d+)', #token + 1)
  return {1, tonumber(first), slot, before, tonumber(had)}
end

slot = not more and vacant()
if slot then
  local first = fence()
  take(slot, token, first, ttl, span, tail)
  keep()
  return {1, first, slot, before, span + 0}
end

if wait == '0' or not enqueue() then
  keep()
  return {wait == '0' and 0 or -2, holders(16)}
end
keep()
return {2, tonumber(call('zscore', Q, token)), call('zrank', Q, token) + 1, left(), before}
