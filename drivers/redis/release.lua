-- release: ends the token's grant or withdraws its ticket, and hands over. What
-- it does not find it bars, as it does what was sent more than once.
-- ARGV: token, loose (1: a copy of its acquire may be on its way), tell (1: say
-- who is in the way).
-- Answers {found, position, holder...}.
local token, loose, tell = unpack(ARGV)

clock()
open()
local position = (call('zrank', Q, token) or -1) + 1
local slot = find(token)
if slot then vacate(slot) elseif position > 0 then leave(token) end
local found = slot or position > 0
if loose == '1' or not found then call('set', bar(token), '', 'px', barring) end
settle({})
keep()
return {found and 1 or 0, position, unpack(tell == '1' and values(16) or {})}
