-- inspect: who holds the key, and who waits for it.
-- Answers {size, {slot, left, value, ...}, {ticket's record, ...}}.
clock()
open()
settle({})
keep()

local holders, waiters = {}, {}
local v = call('get', H)
if v then holders = {0, call('pttl', H), v} end
if size then
  local held = call('zrange', U, 0, -1, 'withscores')
  for i = 1, #held, 2 do
    local n = #holders
    holders[n + 1], holders[n + 2] = tonumber(held[i]), held[i + 1] - ms
    holders[n + 3] = call('hget', P, held[i]) or ''
  end
end

local tickets = call('zrange', Q, 0, -1)
for i = 1, #tickets, 64 do
  local records = call('hmget', T, unpack(tickets, i, math.min(i + 63, #tickets)))
  for _, record in ipairs(records) do waiters[#waiters + 1] = record or '' end
end
return {size or 1, holders, waiters}
