-- force: takes the key from all its holders, tells each, leaves word for their
-- next renewal, which also bars their tokens, and serves the queue.
-- ARGV: id of this call, so that a repeat takes nothing from a successor; why,
-- as JSON. Answers how many there were.
local id, why = unpack(ARGV)
local done = call('hget', X, id)
if done then return tonumber(done) end

clock()
open()
writable()

local n = 0
local function take_away(slot, v)
  local token = string.sub(v, 1, 22)
  local inbox = string.match(v, '"inbox":"([^"]*)"')
  if inbox and inbox ~= '' then pcall('publish', inbox, format('f %s %s', token, why)) end
  call('hset', X, token, why)
  vacate(slot)
  n = n + 1
end

local v = call('get', H)
if v then take_away(0, v) end
if size then
  for _, slot in ipairs(call('zrange', U, 0, -1)) do
    take_away(tonumber(slot), call('hget', P, slot) or '')
  end
end
call('hset', X, id, n)
call('pexpire', X, barring)
settle({})
keep()
return n
