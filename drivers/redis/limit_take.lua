-- take: grants a request, refuses it, or queues it.
-- ARGV: cost, smooth (1 or 0), ticket or '', seq, longest useful wait (-1 for no
-- limit), description of the waiter.
-- Answers {granted, at, wait, again, by, remaining, reset, full, pause left, pause},
-- or {0} to a late copy. A request of cost 0 writes nothing.
local cost, smooth, ticket, seq, patience =
  tonumber(ARGV[arg + 1]), ARGV[arg + 2] == '1', ARGV[arg + 3], tonumber(ARGV[arg + 4]), tonumber(ARGV[arg + 5])

-- measure returns the rate that has the fewest units left, the units, and the time
-- until its log is empty.
local function measure()
  local by, left, empty
  for i, l in ipairs(logs) do
    local rest = max(l.n - l.total + l.base, 0)
    if not left or rest < left then by, left, empty = i - 1, rest, ends(l) end
  end
  return by, left, empty
end

local function granted(at)
  return {1, at, 0, 0, measure()}
end

-- The record of a ticket stays for a while after its grant. W9
local rank -- of the ticket in the queue
if ticket ~= '' then
  forget(ticket)
  local record = call('hget', T, ticket)
  if record then
    local kind, had, at = match(record, '^(%a) (%d+) %d+ (%d*)')
    had = tonumber(had)
    if seq < had then return {0} end
    rank = kind == 'w' and call('zrank', Q, ticket)
    if kind ~= 'w' and seq == had then
      if at == '0' then return {0} end -- it was withdrawn
      return granted(tonumber(at))
    end
  end
end

-- ahead returns the number of tickets before this request, and their units. From
-- the 65th on tickets count as the average of those before.
local function ahead()
  local count = rank or call('zcard', Q)
  if count == 0 then return 0, 0 end
  local some = call('zrange', Q, 0, min(count, 64) - 1)
  local due = cost == 0 and call('zmscore', D, unpack(some)) -- a call of cost 0 removes no dead tickets
  local units, live = 0, 0
  for i, record in ipairs(call('hmget', T, unpack(some))) do
    if record and not (due and tonumber(due[i] or 0) <= now) then
      units, live = units + (match(record, '^w %d+ (%d+)') or 0), live + 1
    end
  end
  return live, ceil(units * count / #some)
end

local waiting, before = 0, 0
if call('exists', Q) == 1 then
  if ticket == '' and cost > 0 then forget(ticket) end
  waiting, before = ahead()
end

local at, by, left, empty = now, measure()
for i, l in ipairs(logs) do
  local free = earliest(l, before + max(cost, 1))
  if smooth then free = max(free, spaced(l, before)) end
  if free > at then at, by, empty = free, i - 1, ends(l) end
end
local pause, why = paused()
if now + pause > at then at, by = now + pause, -1 end -- W13
local wait = at - now

-- W5: no request overtakes a ticket.
if cost > 0 and waiting == 0 and wait == 0 then
  if rank then call('zrem', Q, ticket) end
  grow(cost, smooth)
  if ticket ~= '' then remember(ticket, format('g %.0f %.0f %.0f', seq, cost, now), now + memory) end
  return granted(now)
end

local full, again = 0, 0
if ticket ~= '' and cost > 0 then
  if not rank and call('zcard', Q) >= room then full = 1 end
  if full == 1 or patience >= 0 and wait > patience then
    leave(ticket) -- W6
  else
    again = wait <= 0 and 1000 or wait <= 3000 and wait or min(max(floor(wait * 0.7), 3000), 1000000)
    if not rank then
      local last = call('zrange', Q, -1, -1, 'withscores')[2]
      call('zadd', Q, int(max(now, (last or 0) + 1)), ticket)
    end
    remember(ticket, format('w %.0f %.0f %s', seq, cost, ARGV[arg + 6]), now + again + grace)
  end
end
if stepped and cost > 0 then save(0) end -- otherwise the key's clock would stand still
return {cost == 0 and waiting == 0 and wait == 0 and 1 or 0, 0, wait, again, by, left, empty, full, pause, why}
