-- release: ends the token's grant or withdraws its ticket, and hands over.
-- ARGV: token, barred (1: also bar the token, because a copy of its acquire may
-- still be on its way), tell (1: say who is in the way).
-- Answers {found, position, holder...}; what is not found is always barred.

clock()
open()
local position = (call('zrank', Q, token) or -1) + 1
local slot = find(token)
if slot then vacate(slot) elseif position > 0 then leave(token) end
local found = slot or position > 0
if barred == '1' or not found then bar(token) end
settle({})
keep()
return {found and 1 or 0, position, unpack(tell == '1' and values(16) or {})}
