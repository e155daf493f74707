-- The head of every script on a lock: its names, its clock and its fences.
--
-- The driver puts constants in front of it: cluster, sep (what stands between
-- the parts of a name), and the times window, stale, gone, barring and keeping
-- in ms. Every lock has eight keys: holder, fence, queue, tickets, forced, pool,
-- until, free. On a Cluster all are in KEYS, so that it answers TRYAGAIN while
-- it moves some of them; elsewhere KEYS has just the holders, which is less to
-- send and to take apart.
local call, pcall, format = redis.call, redis.pcall, string.format

local H, F, Q, T, X, P, U, N
local perLock = cluster and 8 or 1

-- lock makes the i-th lock of KEYS the one that all below is about.
local function lock(i)
  if cluster then
    H, F, Q, T, X, P, U, N = unpack(KEYS, 8 * i - 7, 8 * i)
    return
  end
  H = KEYS[i]
  local s = H .. sep
  F, Q, T, X, P, U, N = s .. 'fence', s .. 'queue', s .. 'tickets', s .. 'forced', s .. 'pool', s .. 'until', s .. 'free'
end
lock(1)

-- bar is the key that bars a token. On a Cluster it is the last of KEYS.
local function bar(token) return cluster and KEYS[9] or H .. sep .. 'barred' .. sep .. token end

local us, ms
local function clock()
  local t = call('time')
  us = t[1] * 1000000 + t[2]
  ms = math.floor(us / 1000)
end

-- fence is the next fence: above every earlier one that is stored, and never
-- below the clock, so that it grows although what was stored is lost. What is
-- no fence counts as nothing, of whatever type it is.
local function fence()
  local last = tonumber(pcall('get', F))
  if not last or not (last >= us and last < 9e15) then return us end
  return last + 1
end

-- reserve records span fences from first on. The record may go once the clock
-- is past it.
local function reserve(first, span)
  local last = first + span - 1
  local ahead = math.max(0, math.ceil((last - us) / 1000))
  call('set', F, format('%.0f', last), 'px', format('%.0f', keeping + ahead))
end

local function value(token, first, span, tail)
  return format('%s{"fence":%.0f,"span":%s%s', token, first, span, tail)
end
