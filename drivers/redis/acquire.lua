-- acquire: grants a slot, or queues a ticket if the caller waits, in one step: no
-- release is missed between the refusal and the queue. A repetition with the token of
-- a live grant or of a ticket gets the same answer again.
-- ARGV: token, ttl, wait (1 or 0), wants (slots; or slots;fixed; or, for slots
-- with states, slots;fixed;rest;prefer;avoid), span, tail, and then, if the server
-- has lost the ticket, the ticket's number.
-- Answers
--   {1, fence, slot, resized, span, found} if granted; or the fence alone, as text, if
--     slot is 0, span is the requested one, and nothing was resized or found
--   {2, number, position, left, resized} if queued
--   {0, {slot, left, value, ...}, resized} if busy
--   {-1, why} if the token is barred
--   {-2, {slot, left, value, ...}, resized} if the queue is full
--   {-3, resized} if all slots are withdrawn
--   {-4, size} if the pool has another size, and fixed is 1
local token, ttl, wait, wants, span, tail, number = unpack(ARGV)
local slots, fixed, rests, prefer, avoid = string.match(wants, '^(%d+);?(%d?);?(%d*);?(-?%d*);?(-?%d*)$')
prefer, avoid = tonumber(prefer) or -1, tonumber(avoid) or -1
clock()

-- mark_pooled adds the mark of a pool to a plain lease on slot 0.
local function mark_pooled()
  local v = call('get', H)
  local life = v and call('pttl', H) or 0
  if life <= 0 then return end
  local head, marks, after = string.match(v, '^(%S+ 3 %d+ %d+ %d+)(%a*)(.*)$')
  if head and not string.find(marks, 'b', 1, true) then call('set', H, head .. marks .. 'b' .. after, 'px', life) end
end

-- resize gives the pool the requested size. It returns the earlier size if the pool is
-- in use and changes its size, otherwise 0. If the size is fixed, it changes nothing
-- and returns the present size and true.
local function resize(n)
  local was, rested = size or 1, tonumber(rests)
  if n == was and (not rested or rest == rested) then return 0 end
  local used = call('exists', H) + call('exists', Q) > 0 or (size and call('zcount', S, taken, '+inf') > 0)
  local known = size and (P or not rested) and number -- a lost ticket comes back to a pool that exists
  if used and (known or find(token) or call('zscore', Q, token)) then return 0 end -- repeated: a newer call may have set the size. L15
  if n ~= was and fixed == '1' and used then return was, true end
  rest = rested or rest
  if P or rested then
    if not P then
      P = states()
      if not size then
        call('del', S)
        top = (elsewhere and 1 or call('exists', H)) - 1
      end
      resized(n)
      P.begin()
    end
    if n < was then P.shrink(n) end
    resized(n)
  else
    top = top or 0
    resized(n)
    call('zremrangebyscore', S, n, '(' .. taken)
    for slot = was, math.min(n - 1, top) do
      if call('hexists', L, 's' .. slot) == 0 then call('zadd', S, slot, slot) end
    end
  end
  if P or n > 1 then mark_pooled() end
  return used and n ~= was and was or 0
end

-- enqueue returns false if the queue is full. A ticket that the server has lost
-- gets its earlier place.
local function enqueue()
  if not number and call('zcard', Q) >= room and not call('zscore', Q, token) then return false end -- L10
  local last = tonumber(call('zrange', Q, -1, -1, 'withscores')[2])
  local at = tonumber(number) or math.max(us, (last or 0) + 1)
  call('zadd', Q, 'nx', format('%.0f', at), token)
  call('hset', L, token, format('3 %s %s%s', span, rests ~= '' and slots .. ';' .. prefer .. ';' .. avoid or slots, tail))
  call('zadd', D, format('%.0f', ms + stale), token, format('%.0f', far + ms), 'seen')
  return true
end

call('zadd', D, 'xx', 0, '') -- fails on a full server, which only serves the queue. Later writes would not fail. L21
open()
local why = barred(token)
if why then return {-1, why} end
local before, refused = resize(tonumber(slots))
if refused then
  keep()
  return {-4, before}
end
settle({[token] = true})
if alien then other(alien) end

local slot, v = find(token)
if slot then
  prolong(slot, v, ttl, 0)
  keep()
  local first, had = string.match(v, '^ 3 (%d+) (%d+)', #token + 1)
  return {1, tonumber(first), slot, before, tonumber(had), P and P.found(slot) or ''}
end

if dismiss() then -- a shrink may have left withdrawn slots only
  leave(token)
  keep()
  return {-3, before}
end

slot = not more and vacant(prefer, avoid)
if slot then
  local first = fence()
  reserve(first, span)
  take(slot, token, first, ttl, span, '0', tail)
  keep()
  return {1, first, slot, before, span + 0, P and P.found(slot) or ''}
end

if wait == '0' or not enqueue() then
  keep()
  return {wait == '0' and 0 or -2, holders(16), before}
end
keep()
return {2, tonumber(call('zscore', Q, token)), call('zrank', Q, token) + 1, left(), before}
