-- force: takes the key, or one slot or grant of it, from its holders, and serves the
-- queue. Each holder gets a push, and its token is barred with the reason, which its
-- next renewal reads.
-- ARGV: id of this call, so that a repetition takes nothing from a successor; why,
-- as JSON; the slot, or '' for all; a fence of the grant, 0 for a grant without a
-- fence, or '' for all.
-- Answers the number of the grants, or -1 if the value at the key is not a lease.
local id, why, only, of = unpack(ARGV)
only, of = tonumber(only), tonumber(of)
local done = barred(id)
if done then return tonumber(done) end

clock()
writable()
open()

local n = 0
local function take_away(slot, v)
  if only and slot ~= only then return end
  if of then
    local first, span = string.match(v, '^%S+ 3 (%d+) (%d+) ')
    first, span = tonumber(first or 0), tonumber(span or 1)
    if of < first or of >= first + span then return end
  end
  local token = string.sub(v, 1, 22)
  local to = string.match(v, '^%S+ 3 %d+ %d+ %S+ (%S+)')
  -- First, and its error ends the script: without the push the holder would continue
  -- until its next renewal. '-' is a holder that polls. L4
  if to and to ~= '-' then call('publish', inboxes .. to, format('f2 %s %s', token, why)) end
  bar(token, why)
  vacate(slot, 'forced')
  n = n + 1
end

-- Both are read before a lease is taken: in a hash slot that is being moved, S cannot be
-- read after open has removed the last slot from it.
local v, held = call('get', H), size and call('zrangebyscore', S, taken, '+inf') or {}
if v then
  if not lease(v, call('pttl', H)) then return -1 end -- L16
  take_away(0, v)
end
for _, slot in ipairs(held) do take_away(tonumber(slot), call('hget', L, 's' .. slot) or '') end
bar(id, n)
settle({})
keep()
return n
