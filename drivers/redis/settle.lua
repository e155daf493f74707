-- The repair with which every script that changes a lock begins: while a slot is
-- free and somebody is queued, grant. So every call by anyone mends a crashed
-- holder or a dead head. Where nobody is queued and there is no pool there is
-- nothing to mend, and acquire and release have a shorter way, which stands
-- before this.

-- size and top are nil unless the key is a pool: how many slots it has, and the
-- highest that was ever given.
local size, top

-- The scores of the zset S say what a slot is: from taken on, held until that
-- time in ms; below, clean and free, the lowest number first. (Scores below 0
-- are kept for slots that rest.)
local taken = 1e10

-- far lifts the two times that the zset D keeps beside what is due.
local far = 1e15

-- most bounds what one call removes, and to how many tickets it offers. more
-- reports that there is more to do. L8
local most, more = 128, false

-- alien is a ticket in another version of the format, behind which nobody is
-- served. L24
local alien

local function resized(n)
  size = n
  call('hset', L, 'pool', format('2 %d %d', size, top))
end

local function vacate(slot)
  if slot == 0 then return call('del', H) end
  local v = call('hget', L, 's' .. slot)
  if v then call('hdel', L, 's' .. slot, 'h' .. string.sub(v, 1, 22)) end
  if slot < size then call('zadd', S, slot, slot) else call('zrem', S, slot) end
end

-- open reads the pool, if the key is one, and frees what has expired.
local function open()
  size, top = nil, nil
  local pool = call('hget', L, 'pool')
  if not pool then return end
  local a, b = string.match(pool, '^2 (%d+) (%d+)$')
  if not a then other(pool) end
  size, top = tonumber(a), tonumber(b)
  for _, slot in ipairs(call('zrangebyscore', S, taken, ms)) do vacate(tonumber(slot)) end
end

-- keep lets the keys beside the holder live a little longer than what they are
-- for: a queue that is served, a bar, the longest lease of a pool. L15, L18
local function keep()
  local life = keeping
  if size then
    local last = tonumber(call('zrevrangebyscore', S, '+inf', taken, 'withscores', 'limit', 0, 1)[2])
    if size == 1 and not last then
      call('hdel', L, 'pool')
      call('del', S)
    else
      life = keeping + math.max((last or 0) - ms, call('pttl', H), 0)
    end
  end
  life = format('%.0f', life)
  for _, key in ipairs({L, Q, D}) do call('pexpire', key, life) end
  if size then call('pexpire', S, life) end
end

-- find returns the slot that token holds, and what is stored there.
local function find(token)
  local v = call('get', H)
  if v and string.sub(v, 1, #token) == token then return 0, v end
  local slot = size and tonumber(call('hget', L, 'h' .. token))
  if slot then return slot, call('hget', L, 's' .. slot) end
end

-- vacant returns a slot that may be given now, the lowest first. A pool that
-- has shrunk gives none until fewer are held than it has now.
local function vacant()
  if elsewhere then return nil end
  local held = call('exists', H)
  if not size then return held == 0 and 0 or nil end
  if held + call('zcount', S, taken, '+inf') >= size then return nil end
  if held == 0 then return 0 end
  return tonumber(call('zrangebyscore', S, 0, taken, 'limit', 0, 1)[1]) or top + 1
end

local function take(slot, token, first, ttl, span, tail)
  local v = value(token, first, span, tail)
  reserve(first, span)
  if slot == 0 then return call('set', H, v, 'px', ttl) end
  call('hset', L, 's' .. slot, v, 'h' .. token, slot)
  call('zadd', S, format('%.0f', ms + ttl), slot)
  if slot > top then
    top = slot
    resized(size)
  end
end

-- left is how long, in ms, until something may become free by itself; 0 if there
-- is more to do now.
local function left()
  if more then return 0 end
  local l = call('pttl', H)
  local soonest = size and tonumber(call('zrangebyscore', S, taken, '+inf', 'withscores', 'limit', 0, 1)[2])
  if soonest then l = math.min(l >= 0 and l or soonest - ms, soonest - ms) end
  return l
end

local function inbox(tail) return string.match(tail, '^,"inbox":"([^"]*)"') end

-- prolong makes a grant live for ttl from now, longer or shorter than it would
-- by itself. rev counts the changes of its TTL: a late copy of a call from
-- before the last change does nothing. L12
local function prolong(slot, v, ttl, rev)
  local head, had, rest = string.match(v, '^(.-"span":%d+),"rev":(%d+)(.*)$')
  if not had then
    had = 0
    head, rest = string.match(v, '^(.-"span":%d+)(.*)$')
  end
  rev = tonumber(rev)
  if rev < tonumber(had) then return false end
  if rev > tonumber(had) and head then
    v = format('%s,"rev":%d%s', head, rev, rest)
    if slot == 0 then
      call('set', H, v, 'px', ttl)
      return true
    end
    call('hset', L, 's' .. slot, v)
  end
  if slot == 0 then call('pexpire', H, ttl) else call('zadd', S, format('%.0f', ms + ttl), slot) end
  return true
end

-- writable fails if this server takes no writes, and exempts the later ones of
-- this script from the limit of memory: a queue is served on a full server, and
-- once a push has left, what it says has to be written. L21
local function writable() call('hdel', L, '') end

local function leave(ticket)
  call('zrem', Q, ticket)
  call('hdel', L, ticket)
  call('zrem', D, ticket)
end

-- silent reports whether silence counts. It does not for one heartbeat after a
-- time in which no call about this lock was executed, as when the server stood
-- still: nobody could be heard then. L7
local function silent()
  local seen = (tonumber(call('zscore', D, 'seen')) or 0) - far
  local since = (tonumber(call('zscore', D, 'since')) or 0) - far
  if ms < seen then -- the clock has stepped back; what is due would stay for as long
    for _, member in ipairs(call('zrangebyscore', D, ms + stale, far / 2)) do
      if string.sub(member, 1, 1) ~= '!' then call('zadd', D, format('%.0f', ms + stale), member) end
    end
  end
  if ms < seen or ms - seen > heartbeat then since = ms end
  call('zadd', D, format('%.0f', far + ms), 'seen', format('%.0f', far + since), 'since')
  return ms - since >= heartbeat
end

-- sweep removes what is due: tickets without a heartbeat, and bars. So each dead
-- ticket is removed once, wherever it stands in the queue. L8
local function sweep(alive)
  local counts, due, gone = silent(), call('zrangebyscore', D, '-inf', ms, 'limit', 0, most), {}
  for _, member in ipairs(due) do
    if string.sub(member, 1, 1) == '!' or counts and not alive[member] then gone[#gone + 1] = member end
  end
  if #gone == 0 then return end
  call('zrem', Q, unpack(gone))
  call('hdel', L, unpack(gone))
  call('zrem', D, unpack(gone))
  more = #gone == most
end

-- offer gives slot to a ticket and returns true, or, if nobody hears the push,
-- removes the ticket and returns nil: its process is dead, or its next heartbeat
-- brings the ticket back with its number. alive are the tickets whose process is
-- asking right now and needs no push; deaf are the inboxes that nobody heard.
local function offer(ticket, record, slot, alive, deaf)
  local span, tail = string.match(record, '^2 (%d+) %d+ (.*)$')
  local first = fence()
  if not alive[ticket] then
    local to = inbox(tail)
    local heard = deaf[to] and 0 or pcall('publish', to, format('g2 %s %.0f %d %s', ticket, first, slot, H))
    if counted and heard == 0 then
      deaf[to] = true
      leave(ticket)
      return
    end
    tail = ',"pushed":1' .. tail
  end
  take(slot, ticket, first, window, span, tail)
  leave(ticket)
  return true
end

-- settle is the repair.
local function settle(alive)
  if call('exists', Q) == 0 and call('exists', D) == 0 then return end
  writable()
  sweep(alive)
  local slot = vacant()
  if not slot then return end
  local tickets, deaf = call('zrange', Q, 0, most - 1), {}
  if #tickets == 0 then return end
  local records = call('hmget', L, unpack(tickets))
  for i, ticket in ipairs(tickets) do
    if not records[i] then
      leave(ticket)
    elseif string.sub(records[i], 1, 2) ~= '2 ' then
      alien = records[i]
      return
    elseif offer(ticket, records[i], slot, alive, deaf) then
      slot = vacant()
      if not slot then return end
    end
  end
  more = more or #tickets == most
end

-- holders returns slot, time left and value of each live grant, at most n.
local function holders(n)
  local out, v = {}, call('get', H)
  if v then out = {0, call('pttl', H), v} end
  if size then
    local held = call('zrangebyscore', S, format('(%.0f', ms), '+inf', 'withscores', 'limit', 0, n)
    for i = 1, #held, 2 do
      local at = #out
      out[at + 1], out[at + 2], out[at + 3] = tonumber(held[i]), held[i + 1] - ms, call('hget', L, 's' .. held[i]) or ''
    end
  end
  return out
end
