-- The head of every script on a limit: its keys, its clock, and its logs.
--
-- KEYS: state, tickets, queue, due, and the log of each rate. ARGV begins with N
-- and Per (in us) of each rate; arg is the index of the last of them. Times are in
-- us on the key's clock: the clock of this server, plus lead after a step back.
--
-- A log has an entry for each time of a grant. Its score is the sum of all units
-- granted until then, so that the units in a window are the difference of two scores. The entry before the first one in the window is kept:
-- its score is the base of that difference. A log begins with an entry of 0 units.
local call, format, match, ceil, floor, max, min =
  redis.call, string.format, string.match, math.ceil, math.floor, math.max, math.min
local S, T, Q, D = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local arg = 2 * (#KEYS - 4)

local function int(x) return format('%.0f', x) end

local fields = {'head', 'pause'}
for i = 2, arg, 2 do fields[#fields + 1] = ARGV[i] end
local state = call('hmget', S, unpack(fields))

-- latest is the latest known time on the key's clock. expires is the time at which the
-- state expires.
local latest, lead, expires = 0, 0, 0
if state[1] then
  latest, lead, expires = match(state[1], '^1 (%d+) (%d+) (%d+)$')
  if not latest then error('MEGAFORMAT ' .. (match(state[1], '^(%w+)') or 'unknown') .. ' limit') end
  latest, lead, expires = tonumber(latest), tonumber(lead), tonumber(expires)
end

-- A log without a field in the state was reset, and counts as empty. It is read all the
-- same, so that another program's data ends the script before a log has grown. W3
local logs = {}
for i = 1, arg / 2 do
  local l = {key = KEYS[i + 4], field = ARGV[2 * i], n = tonumber(ARGV[2 * i - 1]), per = tonumber(ARGV[2 * i]),
    newest = 0, total = 0, base = 0, first = 0, seen = 0}
  l.tick = max(floor(l.per / exact), 1)
  logs[i] = l
  local e = call('zrange', l.key, -1, -1, 'withscores')
  if state[i + 2] then
    local n, seen, rest = match(state[i + 2], '^(%d+) (%d+)(.*)$')
    l.known, l.seen = tonumber(n), tonumber(seen)
    if rest ~= '' then
      local last, units, plain = match(rest, '(%d+) (%d+)(.*)')
      l.last, l.units, l.plain = tonumber(last), tonumber(units), plain ~= ''
    end
    if l.n == 0 then l.n = l.known end
    if e[1] then
      l.newest, l.total = tonumber(e[1]), tonumber(e[2])
      latest = max(latest, l.newest - l.tick) -- entries are rounded up
    else
      l.known, l.seen = nil, 0
    end
  end
  l.coarse = l.n > exact -- W2
end

-- W10: after a step back, the key's clock continues from latest.
local t = call('time')
local now = t[1] * 1000000 + t[2] + lead
local stepped = now < latest
if stepped then now, lead = latest, lead + latest - now end

local function entry(l, rank)
  local e = call('zrange', l.key, rank, rank, 'withscores')
  return tonumber(e[1]), tonumber(e[2])
end

-- search returns the rank of the first entry from rank on whose time is not before at.
local function search(l, rank, at)
  local last = call('zcard', l.key)
  while rank < last do
    local mid = floor((rank + last) / 2)
    if entry(l, mid) >= at then last = mid else rank = mid + 1 end
  end
  return rank
end

-- first is the rank of the first entry in the window, and base the sum before it.
for _, l in ipairs(logs) do
  l.ended = l.newest + l.per <= now
  if l.ended then
    l.base = l.total
  else
    local e = call('zrange', l.key, 0, 1, 'withscores')
    if e[1] + l.per <= now then
      l.first, l.base = 1, tonumber(e[2])
      if e[3] + l.per <= now then
        l.first = search(l, 2, now - l.per + 1)
        l.base = select(2, entry(l, l.first - 1))
      end
    end
  end
end

-- ends returns the time until a log is empty.
local function ends(l) return l.total > l.base and max(l.newest + l.per - now, 0) or 0 end

-- earliest returns the time at which units can be granted. It is exact for up to N
-- units, and otherwise an estimate: the other units wait for further windows.
local function earliest(l, units)
  local sum, later = l.total + units - l.n, 0
  if sum > l.total then
    local windows = ceil((sum - l.total) / l.n)
    sum, later = sum - windows * l.n, min(windows * l.per, 4e15)
  end
  if sum <= l.base then return now + later end
  return call('zrange', l.key, int(sum), '+inf', 'byscore', 'limit', 0, 1)[1] + l.per + later
end

-- last returns the time and the units of the last known grant.
local function last(l)
  if l.last then return l.last, l.units end
  if l.total <= l.base then return now, 0 end
  local _, before = entry(l, -2)
  return l.newest, l.total - (before or 0)
end

-- spaced returns the time at which a request may be granted if grants are spaced by
-- Per/N for each unit. The last grant, which may have had more than N units, delays it by one
-- window at most. W8
local function spaced(l, units)
  local function spacing(n) return min(ceil(n * l.per / l.n), 4e15) end
  local at, had = last(l)
  return max(at + min(spacing(had), l.per), now) + spacing(units)
end

-- paused returns the time left of the pause, in us, and its description as JSON.
local function paused()
  local to, text = match(state[2] or '', '^(%d+) (.*)$')
  if not to or tonumber(to) <= now then return 0, '' end
  return tonumber(to) - now, text
end
