-- beat: says for the tickets of several locks that somebody still waits, and
-- hears what has become of them.
-- ARGV, for each lock: how many tickets, then the tickets.
-- Answers, for each lock: left; then for each ticket: 2, 0, 0, 0 if queued;
-- 1, fence, slot, left if granted; 0, 0, 0, 0 if unknown.
local out, a = {}, 1

local function answer(...)
  for _, v in ipairs({...}) do out[#out + 1] = v end
end

local function beaten(tickets)
  local alive = {}
  local records = call('hmget', T, unpack(tickets))
  for i, ticket in ipairs(tickets) do
    alive[ticket] = true
    if records[i] then
      call('hset', T, ticket, (string.gsub(records[i], '^1 %d+', format('1 %.0f', ms), 1)))
    end
  end
  call('pexpire', Q, 2 * gone)
  call('pexpire', T, 2 * gone)
  return alive
end

local function tell(ticket)
  if call('zscore', Q, ticket) then return answer(2, 0, 0, 0) end
  local slot, v = find(ticket)
  if not slot then return answer(0, 0, 0, 0) end
  local until_ = slot == 0 and call('pttl', H) or call('zscore', U, slot) - ms
  answer(1, tonumber(string.match(v, '^{"fence":(%d+)', #ticket + 1)), slot, until_)
end

clock()
for i = 1, #KEYS / perLock do
  lock(i)
  open()
  local n = tonumber(ARGV[a])
  local tickets = {unpack(ARGV, a + 1, a + n)}
  a = a + n + 1
  settle(beaten(tickets))
  keep()
  answer(left())
  for _, ticket in ipairs(tickets) do tell(ticket) end
end
return out
