-- release: ends the token's grant or withdraws its ticket, and hands over. What
-- it does not find it bars, as it does what was sent more than once.
-- ARGV: token; loose (1: a copy of its acquire may be on its way), tell (1: say
-- who is in the way; 2: a push has come that nobody waits for), both 0 if they are
-- missing; then, for a slot that has a state, what becomes of it: free, dirty,
-- withdrawn or back (as it was), strikes, note, reason, why, at, by. Without that it
-- is dirty, and rests.
-- Answers {found, position, {slot, left, value, ...}, why the grant was taken away,
-- refused}, or, if a grant was found and nobody had to be told, 1, or 2 if refused:
-- this user may not publish, and so the next grant was stored without its push.
local token, loose, tell = unpack(ARGV)

clock()
writable() -- first: to see what has expired writes, too
open()
local position = (call('zrank', Q, token) or -1) + 1
local slot = find(token)
-- A push may come after the release that leaves the grant to its expiry. O5
if tell == '2' and slot and not string.find(select(2, find(token)), '^%S+ 3 %d+ %d+ 0') then slot = nil end
-- A holder that has lost its slot is not found, and changes nothing. P3, P5
local handed = ARGV[4] and {unpack(ARGV, 4)} or 'released'
if slot then vacate(slot, handed) elseif position > 0 then leave(token) end
local found = slot or position > 0
local why = barred(token) or ''
if loose == '1' or not found then bar(token, why) end
settle({})
if found then dismiss() end
keep()
return {found and 1 or 0, position, tell == '1' and holders(16) or {}, why, refused}
