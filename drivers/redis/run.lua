-- run: records the runs of a lock: work that starts at most once per tick, which
-- is counted on this server's clock. The caller holds the lock.
-- KEYS: holder key, run key. ARGV: token, fence, op, and then
--   begin: every (us), spend (1: store the tick), life of the record (ms), holder
--   end: tick, every (us), outcome, life of the record (ms)
-- Answers {1, tick, us until the next tick, start in us} if the run was begun or
-- ended; {0, tick, us until the next tick} if it is not due, {0} if it is not
-- the last one; {-1} if the token does not hold the lock.
--
-- The record: format, start of the newest spent tick (us, 0 for none), tick,
-- every, fence, start, end (0 for none), outcome ('-' for none), holder.
local call, format = redis.call, string.format
local token, fence, op = ARGV[1], tonumber(ARGV[2]), ARGV[3]

if string.sub(call('getrange', KEYS[1], 0, 127), 1, #token) ~= token then return {-1} end

local t = call('time')
local us = t[1] * 1000000 + t[2]

-- tickof returns the tick and its start. The division may round up.
local function tickof(every)
  local n = math.floor(us / every)
  if n * every > us then n = n - 1 end
  return n, n * every
end

local old, r = call('get', KEYS[2]), {}
if old then
  local version, rest = string.match(old, '^(%d+) (.*)$')
  if version ~= '3' then error('MEGAFORMAT ' .. (version or 'unknown')) end -- L24
  r.spent, r.tick, r.every, r.fence, r.start, r.over, r.outcome, r.by =
    string.match(rest, '^(%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
end

-- A run of a shorter interval does not shorten the life of the record: the longer
-- tick is still spent. O1
local function lifeof(life) return math.max(tonumber(life), call('pttl', KEYS[2])) end

local function write(spent, tick, every, start, over, outcome, by, life)
  call('set', KEYS[2], format('3 %.0f %.0f %.0f %.0f %.0f %.0f %s %s',
    spent, tick, every, fence, start, over, outcome, by), 'px', life)
end

if op == 'end' then
  local tick, every, outcome, life = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], lifeof(ARGV[7])
  if tonumber(r.fence or 0) ~= fence or r.outcome ~= '-' then return {0} end
  call('pexpire', KEYS[2], life) -- exempts the write from the limit of memory: the new record replaces the present one. L21
  local spent = math.max(tonumber(r.spent), tick * every)
  write(spent, tick, every, tonumber(r.start), us, outcome, r.by, life)
  return {1, tick, 0, tonumber(r.start)}
end

local every, spend, life, by = tonumber(ARGV[4]), ARGV[5], lifeof(ARGV[6]), ARGV[7]
local tick, start = tickof(every)
local left = start + every - us
if r.fence then
  local last, spent = tonumber(r.fence), tonumber(r.spent)
  if last == fence then return {1, tonumber(r.tick), left, tonumber(r.start)} end -- L6
  -- O1: a stored tick that is more than one ahead is replaced.
  if last > fence or not (start > spent or spent - start > every) then return {0, tick, left} end
end
local spent = tonumber(r.spent or 0)
if spend == '1' then spent = start elseif spent > start then spent = 0 end -- O3
write(spent, tick, every, us, 0, '-', by, life)
return {1, tick, left, us}
