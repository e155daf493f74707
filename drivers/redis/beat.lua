-- beat: the heartbeat of the tickets of several locks, which returns their states.
-- ARGV, for each lock: the number of its tickets, then the tickets.
-- Answers, for each lock: left; then for each ticket: 2, 0, 0, 0, '' if queued;
-- 1, fence, slot, left, found if granted; 0, 0, 0, 0, '' if unknown, and
-- -3, 0, 0, 0, '' if all slots are withdrawn.
local out, a = {}, 1

local function answer(...)
  for _, v in ipairs({...}) do out[#out + 1] = v end
end

-- prolonged moves the due times of the tickets, and returns the tickets as a set.
local function prolonged(waiting)
  local alive, due, at = {}, {'xx'}, format('%.0f', ms + stale)
  for i, ticket in ipairs(waiting) do
    alive[ticket] = true
    due[2 * i], due[2 * i + 1] = at, ticket
  end
  call('zadd', D, unpack(due))
  return alive
end

-- report answers the state of a ticket. gone reports whether all slots are withdrawn.
local function report(ticket, gone)
  if call('zscore', Q, ticket) then
    if not gone then return answer(2, 0, 0, 0, '') end
    leave(ticket)
    return answer(-3, 0, 0, 0, '')
  end
  local slot, v = find(ticket)
  if not slot then return answer(gone and -3 or 0, 0, 0, 0, '') end
  local until_ = slot == 0 and call('pttl', H) or call('zscore', S, slot) - ms
  answer(1, tonumber(string.match(v, '^ 3 (%d+)', #ticket + 1)), slot, until_, P and P.found(slot) or '')
end

clock()
for i = 1, math.floor(#KEYS / perLock) do
  lock(i)
  more = false
  writable()
  open()
  local n = tonumber(ARGV[a])
  local waiting = {unpack(ARGV, a + 1, a + n)}
  a = a + n + 1
  settle(prolonged(waiting))
  if alien then other(alien) end
  keep()
  answer(left())
  local gone = P and P.gone()
  for _, ticket in ipairs(waiting) do report(ticket, gone) end
end
return out
