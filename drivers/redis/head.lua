-- The head of every script on a lock: its keys, its clock and its fences.
--
-- The driver puts constants in front of it: sep (the separator of the parts of a
-- key), the times window, stale, heartbeat, barring and keeping in ms, room (the
-- capacity of a queue), and the mode: counted (PUBLISH counts all subscribers),
-- declared, moving and mark; and replicate, which has no effect on a server without
-- redis.set_repl.
-- A lock has five keys: holder, state, order, due, slots. If declared is true, all
-- of them are in KEYS, and the clock mark is the last of KEYS. Otherwise KEYS has
-- only the holder keys, which is less to send and to parse.
local call, pcall, format = redis.call, redis.pcall, string.format

local H, L, Q, D, S
local M = mark or KEYS[#KEYS]
local perLock = declared and 5 or 1

-- lock selects the i-th lock of KEYS.
local function lock(i)
  if declared then
    H, L, Q, D, S = unpack(KEYS, 5 * i - 4, 5 * i)
    return
  end
  H = KEYS[i]
  local s = H .. sep
  L, Q, D, S = s .. 'state', s .. 'order', s .. 'due', s .. 'slots'
end
lock(1)

-- While a slot of a Cluster is moved: floor is the highest fence that the source has
-- given, or 0 if the source has no mark; elsewhere reports that the source has the
-- holder key; apart reports that the source still has the mark. If it has, fences are
-- counted from floor on in a key of the lock. The source has reserved them, so the
-- mark is above them when it arrives, however the two clocks differ. L2
local floor, elsewhere, apart = 0, false, false
if moving then
  floor, elsewhere, M = tonumber(table.remove(ARGV, 1)), table.remove(ARGV, 1) == '1', table.remove(ARGV, 1)
  apart = floor > 0 and call('exists', M) == 0
  if apart then M = H .. sep .. 'fence' end
end

local us, ms
local function clock()
  local t = call('time')
  us = t[1] * 1000000 + t[2]
  ms = math.floor(us / 1000)
end

-- fence returns the next fence. It is above every earlier one, and never below the
-- clock, so that fences grow although the mark was lost. A mark that is not a fence
-- is ignored, whatever its type. A mark that this user may not read is an error: it
-- may be ahead of the clock. L2
local function fence()
  local last = pcall('get', M)
  if type(last) == 'table' and not string.find(last.err, '^WRONGTYPE') then error(last.err) end
  last = tonumber(last) or 0
  if last < floor then last = floor end
  if not apart and not (last >= us and last < 9e15) then return us end -- nan is not a fence either
  return last + 1
end

-- reserve records span fences from first on. The mark never expires: after a step
-- back of the clock, fences grow from the mark.
local function reserve(first, span)
  local last = format('%.0f', first + span - 1)
  if apart then return call('set', M, last, 'px', keeping) end
  call('set', M, last)
end

-- value returns the stored value of a grant, in words: the token, the version of the
-- format, the fence, the span, the marks, the inbox of its process, and its holder in
-- the form of value.go. The marks are the number of changes of its TTL, and letters:
-- p for a grant that was pushed and may not have arrived, b for slot 0 of a pool,
-- whose holder renews by confirm, which also prolongs the keys of the pool. L15
local function value(token, first, span, marks, tail)
  return format('%s 3 %.0f %s %s%s', token, first, span, marks, tail)
end

-- other fails because of data in another version of the format. L24
local function other(data)
  error('MEGAFORMAT ' .. (string.match(data, '^(%d+)') or 'unknown'))
end

-- barred returns the reason why a token is barred, '' if there is no reason, or nil
-- if the token is not barred.
local function barred(token)
  local why = call('hget', L, '!' .. token)
  return why and string.sub(why, 3)
end

-- bar makes the server refuse a token from now on, for the reason why.
local function bar(token, why)
  call('hset', L, '!' .. token, '3 ' .. why)
  call('zadd', D, format('%.0f', ms + barring), '!' .. token)
end
