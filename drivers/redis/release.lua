-- release: ends the token's grant or withdraws its ticket, and hands over. What
-- it does not find it bars, as it does what was sent more than once.
-- ARGV: token, loose (1: a copy of its acquire may be on its way), tell (1: say
-- who is in the way).
-- Answers {found, position, {slot, left, value, ...}, why the grant was taken away}.
local token, loose, tell = unpack(ARGV)

clock()
open()
writable()
local position = (call('zrank', Q, token) or -1) + 1
local slot = find(token)
if slot then vacate(slot) elseif position > 0 then leave(token) end
local found = slot or position > 0
local why = barred(token) or ''
if loose == '1' or not found then bar(token, why) end
settle({})
keep()
return {found and 1 or 0, position, tell == '1' and holders(16) or {}, why}
