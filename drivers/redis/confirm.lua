-- confirm: renews grants of one lock, of any slot, and returns why a grant was lost.
-- ARGV, for each grant: token, ttl (0: only look), rev, mode (1: the grant was pushed
-- and is not renewed, so it lives for exactly ttl; 2: a release leaves the grant to its
-- expiry after ttl; 3: as 2, and a copy of its acquire may be on its way).
-- Answers, for each: {1, fence, slot, left, found}, where left is '' if the grant
-- lives for ttl from now, or {0, reason}.
clock()
writable()
open()
settle({})

-- settled ends the window of a pushed grant, once: it removes the mark of the window.
local function settled(slot, v, ttl)
  local plain, n = string.gsub(v, '^(%S+ 3 %d+ %d+ %d+%a-)p', '%1', 1)
  if n == 0 then return prolong(slot, v, ttl, 0) end
  if slot == 0 then
    call('set', H, plain, 'px', ttl)
  else
    call('hset', L, 's' .. slot, plain)
    call('zadd', S, format('%.0f', ms + ttl), slot)
  end
  return true
end

local out, before = {}, left()
for i = 1, #ARGV, 4 do
  local token, ttl, rev, mode = unpack(ARGV, i, i + 3)
  local slot, v = find(token)
  if slot then
    local lives = ''
    if mode == '1' then
      settled(slot, v, ttl)
    elseif mode >= '2' then
      local had = string.match(v, '^%S+ 3 %d+ %d+ (%d+)')
      if not had or tonumber(had) < tonumber(rev) then prolong(slot, v, ttl, rev) end -- once. O5
    elseif ttl ~= '0' and not prolong(slot, v, ttl, rev) then
      lives = slot == 0 and call('pttl', H) or call('zscore', S, slot) - ms
    end
    out[#out + 1] = {1, tonumber(string.match(v, '^ 3 (%d+)', #token + 1)), slot, lives, P and P.found(slot) or ''}
  else
    out[#out + 1] = {0, barred(token) or ''}
  end
  if mode == '3' then bar(token, barred(token) or '') end -- L6
end
if not size and left() < before then hint() end
keep()
return out
