-- inspect: the state of a limit. It writes nothing.
-- Answers {{N, used, us until a unit is free, ...}, {cost, waiter, ...}, pause left,
-- pause, {Per, ...}}; the last one, of the logs that exist, only to a call without
-- rates. N is the one of the call or, if that is 0, of the last grant.
local rates, waiters, pers = {}, {}, {}
for _, l in ipairs(logs) do
  local at = #rates
  local free = l.n > 0 and earliest(l, 1) or now
  if l.n > 0 and l.last and not l.plain then free = max(free, spaced(l, 0)) end
  rates[at + 1], rates[at + 2], rates[at + 3] = l.n, l.total - l.base, free - now
end
if arg == 0 then
  for _, field in ipairs(call('hkeys', S)) do
    if match(field, '^%d+$') then pers[#pers + 1] = field end
  end
end
local queue = call('zrange', Q, 0, -1)
for i = 1, #queue, 64 do
  local last = min(i + 63, #queue)
  local due = call('zmscore', D, unpack(queue, i, last))
  for j, record in ipairs(call('hmget', T, unpack(queue, i, last))) do
    if record and tonumber(due[j] or 0) > now then
      local at = #waiters
      waiters[at + 1], waiters[at + 2] = match(record, '^w %d+ (%d+) (.*)$')
    end
  end
end
local left, why = paused()
return {rates, waiters, left, why, pers}
