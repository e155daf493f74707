-- release: ends the token's grant or withdraws its ticket, bars the token, and
-- hands over.
-- KEYS[9]: what bars the token. ARGV: token, for how long to bar it in ms, tell
-- (1: say who is in the way).
-- Answers {found, position, holder...}.

clock()
open()
local position = (call('zrank', Q, token) or -1) + 1
local slot = find(token)
if slot then vacate(slot) elseif position > 0 then leave(token) end
local found = slot or position > 0
call('set', barred, '', 'px', found and barring_for or barring)
settle({})
keep()
return {found and 1 or 0, position, unpack(tell == '1' and values(16) or {})}
