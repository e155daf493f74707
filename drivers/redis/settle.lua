-- The repair at the beginning of every script that changes a lock: while a slot is
-- free and the queue has a ticket, grant. So any call of any process repairs the lock
-- after the crash of its holder or of the head of its queue. A lock without a queue
-- and without a pool needs no repair. Acquire and release have fast paths for it,
-- which stand before this.

-- most bounds the tickets that one call removes, and the tickets that it makes an
-- offer to. more reports that there is more to do. L8
local most, more = 128, false

-- alien is the record of a ticket in another version of the format. No ticket behind
-- it is served. L24
local alien

-- vacate frees a slot. If the slot has a state, why is the reason for which it becomes
-- dirty, or the list of the arguments of handBack.
local function vacate(slot, why)
  if slot == 0 then
    call('del', H)
  else
    local v = call('hget', L, 's' .. slot)
    if v then call('hdel', L, 's' .. slot, 'h' .. string.sub(v, 1, 22)) end
  end
  if P then
    if type(why) == 'table' then return P.handBack(slot, unpack(why)) end
    return P.lose(slot, why)
  end
  if slot == 0 then return end
  if slot < size then call('zadd', S, slot, slot) else call('zrem', S, slot) end
end

-- open reads the pool, if the key is one, and frees its expired slots.
local function open()
  size, top, rest, P = nil, nil, nil, nil
  local pool = call('hget', L, 'pool')
  if not pool then return end
  local a, b = string.match(pool, '^3 (%d+) (%d+)$')
  if not a then
    local c
    a, b, c = string.match(pool, '^3 (%d+) (-?%d+) (%d+)$')
    if not a then other(pool) end
    rest, P = tonumber(c), states()
  end
  size, top = tonumber(a), tonumber(b)
  for _, slot in ipairs(call('zrangebyscore', S, taken, ms)) do vacate(tonumber(slot), 'expired') end
  if P then P.open() end
end

-- inbox returns the channel of the process that queued the ticket with this record.
local function inbox(record)
  local id = string.match(record, '^3 %d+ %S+ (%S+)')
  return id and inboxes .. id
end

-- left returns the time in ms until a slot may become free without a call, 0 if there
-- is more to do now, and a negative number if no slot will.
local function left()
  if more then return 0 end
  local l = call('pttl', H)
  local soonest = size and tonumber(call('zrangebyscore', S, taken, '+inf', 'withscores', 'limit', 0, 1)[2])
  if soonest then l = math.min(l >= 0 and l or soonest - ms, soonest - ms) end
  local rested = P and P.rested()
  if rested then l = math.min(l >= 0 and l or rested, rested) end
  return l
end

-- hint pushes the time until a slot becomes free to the head of the queue, if that is
-- earlier than in the last hint: the waiter is served at that time, and not at its
-- next heartbeat. A head without a subscriber is skipped. P11
local function hint()
  local heads = call('zrange', Q, 0, 7)
  if not heads[1] then return end
  local l = left()
  if l < 0 or l > heartbeat then return end -- its heartbeats find it in time
  if size then
    local at = ms + l
    local head, time = string.match(call('hget', L, 'told') or '', '^(%S+) (%d+)$')
    if head == heads[1] and tonumber(time) <= at + 5 and tonumber(time) >= ms then return end
    call('hset', L, 'told', format('%s %.0f', heads[1], at))
  end
  for _, head in ipairs(heads) do
    local record = call('hget', L, head)
    local to = inbox(record or '')
    if to and (pcall('publish', to, format('w2 %s %.0f', head, l)) ~= 0 or not counted) then return end
  end
end

-- keep sets the TTL of the keys beside the holder key. They live longer than the
-- queue, than a bar, and than the longest lease of a pool. L15, L18
local function keep()
  local life = keeping
  if size then
    local last = tonumber(call('zrevrangebyscore', S, '+inf', taken, 'withscores', 'limit', 0, 1)[2])
    local known = P and P.life() or 0
    if size == 1 and not last and not P then
      call('hdel', L, 'pool', 'told')
      call('del', S)
      size, top = nil, nil
    else
      hint()
      -- Without a ticket and without a bar, the fast paths of a pool apply again.
      if P and call('exists', Q) == 0 and call('zcount', D, '(0', far / 2) == 0 then call('del', D) end
      if known == far then
        for _, key in ipairs({L, D, S}) do call('persist', key) end
        return
      end
      life = keeping + math.max((last or 0) - ms, call('pttl', H), known)
    end
  end
  life = format('%.0f', life)
  for _, key in ipairs({L, Q, D}) do call('pexpire', key, life) end
  if size then call('pexpire', S, life) end
end

-- find returns the slot that token holds, and its stored value.
local function find(token)
  local v = call('get', H)
  if v and string.sub(v, 1, #token) == token then return 0, v end
  local slot = size and tonumber(call('hget', L, 'h' .. token))
  if slot then return slot, call('hget', L, 's' .. slot) end
end

-- vacant returns a slot that may be granted now, the lowest first, or nil. It never
-- returns a slot that is held. P1. A pool that has shrunk grants none until fewer
-- slots are held than its new size. While a slot of a Cluster is moved, the holder
-- key at the source is the lease of slot 0.
local function vacant(prefer, avoid)
  local held = elsewhere and 1 or call('exists', H)
  if not size then return held == 0 and 0 or nil end
  if held + call('zcount', S, taken, '+inf') >= size then return nil end
  if P then return P.pick(prefer or -1, avoid or -1) end
  if held == 0 then return 0 end
  local slot = tonumber(call('zrangebyscore', S, 0, taken, 'limit', 0, 1)[1]) or top + 1
  if slot < size then return slot end
  for lost = 1, size - 1 do -- the server has lost S: the holder of this slot has lost it
    if not call('zscore', S, lost) then
      vacate(lost)
      return lost
    end
  end
end

-- take stores a grant whose fences are reserved.
local function take(slot, token, first, ttl, span, marks, tail)
  if P and slot == 0 then marks = marks .. 'b' end
  local v = value(token, first, span, marks, tail)
  if P then P.take(slot, token, tail) end
  if slot == 0 then
    call('set', H, v, 'px', ttl)
  else
    call('hset', L, 's' .. slot, v, 'h' .. token, slot)
    call('zadd', S, format('%.0f', ms + ttl), slot)
  end
  if size and slot > top then
    top = slot
    resized(size)
  end
end

-- prolong makes a grant live for ttl from now, which may be longer or shorter than
-- before. rev counts the changes of its TTL: a late copy of a call from before the
-- last change has no effect, and prolong returns false. L12
local function prolong(slot, v, ttl, rev)
  local head, had, rest = string.match(v, '^(%S+ 3 %d+ %d+ )(%d+)(.*)$')
  rev, had = tonumber(rev), tonumber(had or 0)
  if rev < had then return false end
  if rev > had and head then
    v = format('%s%d%s', head, rev, rest)
    if slot == 0 then
      call('set', H, v, 'px', ttl)
      return true
    end
    call('hset', L, 's' .. slot, v)
  end
  if slot == 0 then call('pexpire', H, ttl) else call('zadd', S, format('%.0f', ms + ttl), slot) end
  return true
end

-- writable fails if this server takes no writes. It exempts the later writes of this
-- script from the limit of memory: a full server serves the queue, and it must store
-- the grant of a push that has left. L21
local function writable() call('hdel', L, '') end

local function leave(ticket)
  call('zrem', Q, ticket)
  call('hdel', L, ticket)
  call('zrem', D, ticket)
end

-- silent reports whether a missing heartbeat counts. It does not count for one
-- heartbeat after a time without an executed call about this lock, such as a stop of
-- the server: no heartbeat could arrive then. L7
local function silent()
  local seen = (tonumber(call('zscore', D, 'seen')) or 0) - far
  local since = (tonumber(call('zscore', D, 'since')) or 0) - far
  if ms < seen then -- the clock has stepped back: all would be due later by as much
    for _, member in ipairs(call('zrangebyscore', D, ms + stale, far / 2)) do
      if string.sub(member, 1, 1) ~= '!' then call('zadd', D, format('%.0f', ms + stale), member) end
    end
  end
  if ms < seen or ms - seen > heartbeat then since = ms end
  call('zadd', D, format('%.0f', far + ms), 'seen', format('%.0f', far + since), 'since')
  return ms - since >= heartbeat
end

-- sweep removes the due members: tickets without a heartbeat, and bars. So each dead
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

-- refused is 1 after the server has refused a push.
local refused = 0

-- offer grants slot to a ticket and returns true. If the push has no subscriber, offer
-- removes the ticket and returns nil: its process is dead, or its next heartbeat
-- brings the ticket back with its number. alive has the tickets of the process whose
-- call this is: it needs no push. deaf has the inboxes without a subscriber.
local function offer(ticket, record, slot, alive, deaf)
  local span, wants, tail = string.match(record, '^3 (%d+) (%S+)( .*)$')
  local first = fence()
  if P then
    local prefer, avoid = string.match(wants, '^%d+;(-?%d+);(-?%d+)$')
    slot = vacant(tonumber(prefer), tonumber(avoid))
  end
  local to = not alive[ticket] and inbox(record)
  leave(ticket)
  if to and deaf[to] then return end
  local found = P and P.found(slot)
  reserve(first, span)
  take(slot, ticket, first, window, span, to and '0p' or '0', tail)
  -- The push is last: a user that may not write the grant must not push it. L6 It goes to
  -- no replica, whose subscribers this server does not count: one of them would take a
  -- grant that is taken back. L1
  replicate(redis.REPL_AOF)
  local heard = to and pcall('publish', to, P
    and format('g3 %s %.0f %d %s %s', ticket, first, slot, H, found)
    or format('g2 %s %.0f %d %s', ticket, first, slot, H))
  replicate(redis.REPL_ALL)
  if type(heard) == 'table' then refused = 1 end
  if not counted or heard ~= 0 then return true end
  deaf[to] = true
  vacate(slot, {'back'})
  if P then call('hset', L, 'r' .. slot, found) end -- with its last holder
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
    elseif string.sub(records[i], 1, 2) ~= '3 ' then
      alien = records[i]
      return
    elseif offer(ticket, records[i], slot, alive, deaf) then
      slot = vacant()
      if not slot then return end
      if apart and i < #tickets then -- the source has reserved the fences of few grants
        more = true
        return
      end
    end
  end
  more = more or #tickets == most
end

-- dismiss reports whether every slot is withdrawn. If so, it has all waiters send a
-- heartbeat at once: its answer is their refusal. P8
local function dismiss()
  if not P or not P.gone() then return false end
  for _, ticket in ipairs(call('zrange', Q, 0, most - 1)) do
    local to = inbox(call('hget', L, ticket) or '')
    if to then pcall('publish', to, 'w2 ' .. ticket .. ' 0') end
  end
  return true
end

-- holders returns slot, time left and value of the live grants, at most n of them.
local function holders(n)
  local out, v = {}, call('get', H)
  if v then out = {0, call('pttl', H), v} end
  if size then
    local held = call('zrangebyscore', S, format('(%.0f', ms), '+inf', 'withscores', 'limit', 0, n - #out / 3)
    for i = 1, #held, 2 do
      local at = #out
      out[at + 1], out[at + 2], out[at + 3] = tonumber(held[i]), held[i + 1] - ms, call('hget', L, 's' .. held[i]) or ''
    end
  end
  return out
end
