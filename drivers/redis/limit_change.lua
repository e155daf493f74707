-- The common part of the scripts that change a limit.

-- returning fails if this server takes no writes. It exempts the later writes of this
-- script from the limit of memory: a full server also counts the units that a grant
-- has not used, and its debt.
local function returning() call('hdel', T, '') end

-- save writes the head of the state and the given fields. The state lives for at least
-- ms from now on.
local function save(ms, ...)
  local had = expires
  latest, expires = max(latest, now), max(expires, now + ms * 1000)
  call('hset', S, 'head', format('1 %.0f %.0f %.0f', latest, lead, expires), ...)
  if expires > had then call('pexpire', S, int(ceil((expires - now) / 1000))) end
end

-- described returns the field of a log in the state. The last grant is in it if it was
-- spaced, and, with a mark, if it was not but a debt follows it in the log.
local function described(l)
  if l.last then return format('%.0f %.0f %.0f %.0f%s', l.n, l.seen, l.last, l.units, l.plain and ' plain' or '') end
  return format('%.0f %.0f', l.n, l.seen)
end

-- shift subtracts units from all entries from rank on.
local function shift(l, rank, units)
  local e = call('zrange', l.key, rank, -1, 'withscores')
  for i = 1, #e, 2 do e[i], e[i + 1] = int(e[i + 1] - units), e[i] end
  if e[1] then call('zadd', l.key, unpack(e)) end
  l.total = l.total - units
end

-- add appends units to the log. The times of a log never decrease. It drops the
-- entries that have left the window, except the last of them.
local function add(l, units)
  if not l.known then -- a new log: an earlier grant cannot return units to it
    local start = int(now - 1)
    call('zadd', l.key, -1, start) -- first, because it fails on a full server
    call('zremrangebyrank', l.key, 1, -1) -- not del: in a hash slot that is being moved, a removed key cannot come back
    call('zadd', l.key, 0, start)
  end
  l.total = l.total + units
  l.newest = max(l.newest, l.coarse and ceil(now / l.tick) * l.tick or now)
  call('zadd', l.key, int(l.total), int(l.newest))
  if l.ended then
    call('zremrangebyrank', l.key, 0, -3)
  elseif l.first > 1 then
    call('zremrangebyrank', l.key, 0, l.first - 2)
  end
  l.ended = false
  if l.total > 4e15 then -- scores are exact below 2^53
    shift(l, 0, l.base)
    l.base = 0
  end
end

-- prune removes the fields of the rates whose logs have expired.
local function prune()
  local all, gone = call('hgetall', S), {}
  for i = 1, #all, 2 do
    local per, seen = tonumber(all[i]), match(all[i + 1], '^%d+ (%d+)')
    if per and seen + 2 * per + 3 * refresh < now then gone[#gone + 1] = all[i] end
  end
  if gone[1] then call('hdel', S, unpack(gone)) end
end

-- grow adds units to all logs (W3), and writes the changed fields of the state. A log
-- and the state get a new TTL once per refresh, because each is one more write.
-- spaced is true if the grants are spaced, and nil for a debt.
local function grow(units, spaced)
  local changed, longest = {}, 0
  for _, l in ipairs(logs) do
    local was = l.known
    if spaced == nil then -- a debt is not a grant: the N of the last grant stays
      l.n = l.known or l.n
      if not l.last then -- the debt hides it in the log
        l.last, l.units = last(l)
        l.plain = true
      end
    end
    add(l, units)
    if not was or now - l.seen >= refresh then
      local life = ceil((l.per + l.tick + 2 * refresh) / 1000)
      call('pexpire', l.key, int(life))
      if not was then prune() end
      longest, was, l.seen = max(longest, life), nil, now
    end
    local had = l.last
    if spaced then
      l.last, l.units, l.plain = now, units, false
    elseif spaced == false then
      l.last = nil -- the log has it
    end
    if was ~= l.n or l.last or had then
      changed[#changed + 1] = l.field
      changed[#changed + 1] = described(l)
    end
  end
  if changed[1] or stepped then save(longest, unpack(changed)) end
  if state[2] and paused() == 0 then call('hdel', S, 'pause') end -- with it no grant takes the fast path
end

-- refund returns units of the grant at the time at to its own window. The entry
-- of a grant is the first one that is not before it, at most a tick later: time is
-- rounded up, and a clock that has stepped back stays within a tick of the newest entry.
-- A later one is of another grant, after a step back while nothing of the key was known.
-- A grant that has left the window has nothing to return. W7
local function refund(l, units, at)
  if not l.known or l.ended then return end
  local rank = search(l, 0, at)
  local time, sum = entry(l, rank)
  if not time or time + l.per <= now or time > at + l.tick then return end
  local before = rank > 0 and select(2, entry(l, rank - 1)) or 0
  units = min(units, sum - before)
  if units == 0 then return end
  shift(l, rank, units)
  if sum - units == before then call('zremrangebyrank', l.key, rank, rank) end
  if l.last == at then
    l.units, l.n = max(l.units - units, 0), l.known
    save(0, l.field, described(l))
  end
end

-- forget removes dead tickets (W7) and expired records. All members of T and Q are in
-- D: if a full server has evicted D, the dead ones are unknown, and all are removed.
-- newcomer is the ticket of a request, or '' if it has none. Unless the newcomer is
-- queued, a full server refuses it before the removal, after which no write fails.
local function forget(newcomer)
  local gone = call('zrangebyscore', D, '-inf', int(now), 'limit', 0, 500)
  local lost = not gone[1] and call('exists', D) == 0 and call('exists', T, Q) > 0
  if (lost or gone[1]) and newcomer and not call('zscore', Q, newcomer) then call('zadd', D, 'xx', 0, '') end
  if lost then call('del', T, Q) end
  while gone[1] do
    call('zrem', D, unpack(gone))
    call('zrem', Q, unpack(gone))
    call('hdel', T, unpack(gone))
    gone = gone[500] and call('zrangebyscore', D, '-inf', int(now), 'limit', 0, 500) or {}
  end
end

local function leave(ticket)
  call('zrem', Q, ticket)
  call('zrem', D, ticket)
  call('hdel', T, ticket)
end

-- remember stores the record of a ticket, or the id of a change, until due.
local function remember(name, record, due)
  call('hset', T, name, record)
  call('zadd', D, int(due), name)
  local life = max(keeping, call('pttl', T), ceil((due - now) / 1000)) -- another record may be due later
  for _, key in ipairs({T, Q, D}) do call('pexpire', key, int(life)) end
  save(keeping)
end
