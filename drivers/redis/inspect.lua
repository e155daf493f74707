-- inspect: the holders and the waiters of the key. It writes nothing.
-- Answers {size, {slot, left, value, ...}, {ticket's record, ...}, last run, {number,
-- state, rest, record, ...}}, or {-1, type} if the value at the key is not a lease.
clock()
local kind = call('type', H).ok
if kind ~= 'string' and kind ~= 'none' then return {-1, kind} end
local pool = call('hget', L, 'pool')
if pool then
  size = tonumber(string.match(pool, '^3 (%d+) %d+$'))
  if not size then
    size, top, rest = string.match(pool, '^3 (%d+) (-?%d+) (%d+)$')
    if not size then other(pool) end
    size, top, rest, P = tonumber(size), tonumber(top), tonumber(rest), states()
  end
end
local v = call('get', H)
if v and not lease(v, call('pttl', H)) then return {-1, kind} end

-- A ticket whose heartbeats are missing for so long that no waiter can be behind it is
-- left out, although only a script that writes removes it. L8
local waiters, quiet = {}, ms - 8000 + stale
local queue = call('zrange', Q, 0, -1)
for i = 1, #queue, 64 do
  local last = math.min(i + 63, #queue)
  local records = call('hmget', L, unpack(queue, i, last))
  local due = call('zmscore', D, unpack(queue, i, last))
  for j, record in ipairs(records) do
    if record and (not due[j] or tonumber(due[j]) >= quiet) then
      if not string.find(record, '^3 ') then other(record) end
      waiters[#waiters + 1] = record
    end
  end
end
-- The key of the last run is not declared, so that a call has no more keys. On a
-- server that refuses undeclared keys there is no last run. O4
local run = pcall('get', H .. sep .. 'run')
return {size or 1, holders(4096), waiters, type(run) == 'string' and run or '', P and P.list() or {}}
