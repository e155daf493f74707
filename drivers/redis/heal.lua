-- heal: makes a resting or withdrawn slot dirty, which may be granted again, and
-- serves the queue. A second copy has no effect.
-- ARGV: id of this call, slot, by (words, as in a value). Answers 1, or 0 if the slot
-- was neither.
local id = ARGV[1]
if barred(id) then return 0 end
clock()
writable()
open()
local healed = P and P.heal(tonumber(ARGV[2]), ARGV[3])
bar(id, '')
settle({})
keep()
return healed and 1 or 0
