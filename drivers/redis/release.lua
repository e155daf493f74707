-- release: ends the grant of a token or withdraws its ticket, and hands over. It bars
-- a token without a grant and a ticket, and a token whose acquire was sent more than
-- once.
-- ARGV: token; loose (1: a copy of its acquire may be on its way), mode (1: answer the
-- holders; 2: a push for which nobody waits has arrived), both 0 if they are missing;
-- then, for a slot with a state, its next state: free, dirty, withdrawn or back
-- (unchanged), strikes, note, reason, why, at, by. Without these it becomes dirty, and
-- rests.
-- Answers {found, position, {slot, left, value, ...}, why the grant was taken away,
-- refused}, or on a fast path 1, or 2 if refused: this user may not publish, and the
-- next grant was stored without its push.
local token, loose, mode = unpack(ARGV)

clock()
writable() -- first: open may write
open()
local position = (call('zrank', Q, token) or -1) + 1
local slot = find(token)
-- A push may arrive after the release that leaves the grant to its expiry. O5
if mode == '2' and slot and not string.find(select(2, find(token)), '^%S+ 3 %d+ %d+ 0') then slot = nil end
-- A holder that has lost its slot is not found, and changes nothing. P3, P5
local handed = ARGV[4] and {unpack(ARGV, 4)} or 'released'
if slot then vacate(slot, handed) elseif position > 0 then leave(token) end
local found = slot or position > 0
local why = barred(token) or ''
if loose == '1' or not found then bar(token, why) end
settle({})
if found then dismiss() end
keep()
return {found and 1 or 0, position, mode == '1' and holders(16) or {}, why, refused}
