-- The repair with which every script on a lock begins: while a slot is free and
-- somebody is queued, grant. So every call by anyone mends a crashed holder or a
-- dead head. Where nobody is queued and there is no pool there is nothing to
-- mend, and acquire and release have a shorter way, which stands before this.

-- size and top are nil unless the key is a pool: how many slots it has, and the
-- highest that was ever given.
local size, top

local function vacate(slot)
  if slot == 0 then return call('del', H) end
  local v = call('hget', P, slot)
  if v then call('hdel', P, slot, string.sub(v, 1, 22)) end
  call('zrem', U, slot)
  if slot < size then call('zadd', N, slot, slot) end
end

-- open looks at the pool, if the key is one, and frees what has expired.
local function open()
  size, top = nil, nil
  if call('exists', P) == 0 then return end
  local m = call('hmget', P, 'size', 'top')
  size, top = tonumber(m[1]) or 1, tonumber(m[2]) or 0
  for _, slot in ipairs(call('zrangebyscore', U, '-inf', ms)) do vacate(tonumber(slot)) end
end

-- keep lets a pool's keys live a little longer than its longest lease.
local function keep()
  if not size then return end
  local last = tonumber(call('zrange', U, -1, -1, 'withscores')[2])
  if size == 1 and not last then return call('del', P, U, N) end
  local expiry = format('%.0f', math.max(last or 0, ms + math.max(0, call('pttl', H))) + keeping)
  for _, key in ipairs({P, U, N}) do call('pexpireat', key, expiry) end
end

-- find returns the slot that token holds, and what is stored there.
local function find(token)
  local v = call('get', H)
  if v and string.sub(v, 1, #token) == token then return 0, v end
  local slot = size and tonumber(call('hget', P, token))
  if slot then return slot, call('hget', P, slot) end
end

-- vacant returns a slot that may be given now, the lowest first. A pool that
-- has shrunk gives none until fewer are held than it has now.
local function vacant()
  local held = call('exists', H)
  if not size then return held == 0 and 0 or nil end
  if held + call('zcard', U) >= size then return nil end
  if held == 0 then return 0 end
  return tonumber(call('zrange', N, 0, 0)[1]) or top + 1
end

local function take(slot, token, first, ttl, span, tail)
  local v = value(token, first, span, tail)
  reserve(first, span)
  if slot == 0 then return call('set', H, v, 'px', ttl) end
  call('hset', P, slot, v, token, slot)
  call('zadd', U, format('%.0f', ms + ttl), slot)
  call('zrem', N, slot)
  if slot > top then
    top = slot
    call('hset', P, 'top', top)
  end
end

-- prolong makes a slot live for ttl from now, and never for less than it would
-- anyway: a copy of a call that was delayed takes nothing from a later one.
local function prolong(slot, ttl)
  if slot > 0 then
    if tonumber(call('zscore', U, slot)) < ms + ttl then call('zadd', U, format('%.0f', ms + ttl), slot) end
  elseif call('pttl', H) < tonumber(ttl) then
    call('pexpire', H, ttl)
  end
end

-- writable fails if this server takes no writes, and makes the later ones of
-- this script exempt from the limit of memory: once a push has left, what it
-- says has to be written.
local function writable() call('hdel', T, '') end

local function leave(ticket)
  call('zrem', Q, ticket)
  call('hdel', T, ticket)
end

-- offer gives slot to a ticket and returns true, or, if nobody is there to take
-- it, passes over it and returns nil. alive are the tickets whose process is
-- asking right now and needs no push; deaf are the inboxes that nobody heard.
local function offer(ticket, record, slot, alive, deaf)
  local _, _, beaten, span, tail = string.find(record, '^1 (%d+) (%d+) %d+ (.*)$')
  if not beaten then return end
  local first = fence()
  if not alive[ticket] then
    local inbox = string.match(tail, '^,"inbox":"([^"]*)"')
    if ms - beaten > stale or deaf[inbox] then return end
    local heard = pcall('publish', inbox, format('g %s %.0f %d %s', ticket, first, slot, H))
    if not cluster and heard == 0 then
      deaf[inbox] = true
      return
    end
    tail = ',"pushed":1' .. tail
  end
  take(slot, ticket, first, window, span, tail)
  leave(ticket)
  return true
end

-- forget removes a ticket that nobody has beaten for long, or that has lost its
-- record, and says whether it did.
local function forget(ticket, record)
  local beaten = record and string.match(record, '^1 (%d+) ')
  if record and (not beaten or ms - beaten <= gone) then return false end
  leave(ticket)
  return true
end

-- settle is the repair.
local function settle(alive)
  if call('exists', Q) == 0 then return end
  local slot, at, deaf = vacant(), 0, {}
  if slot then writable() end
  while slot do
    local tickets = call('zrange', Q, at, at + 63)
    if #tickets == 0 then return end
    local records = call('hmget', T, unpack(tickets))
    for i, ticket in ipairs(tickets) do
      if alive[ticket] and records[i] or not forget(ticket, records[i]) then
        if offer(ticket, records[i], slot, alive, deaf) then
          slot = vacant()
          if not slot then return end
        else
          at = at + 1
        end
      end
    end
  end
end

-- left is how long, in ms, until something may become free by itself.
local function left()
  local l = call('pttl', H)
  local soonest = size and tonumber(call('zrange', U, 0, 0, 'withscores')[2])
  if soonest then l = math.min(l >= 0 and l or soonest - ms, soonest - ms) end
  return l
end

-- values are what the holders stored, at most n of them.
local function values(n)
  local out = {call('get', H) or nil}
  if size then
    for _, slot in ipairs(call('zrange', U, 0, n - 2)) do out[#out + 1] = call('hget', P, slot) or nil end
  end
  return out
end
