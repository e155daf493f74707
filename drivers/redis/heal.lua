-- heal: makes a resting or withdrawn slot dirty, which may be granted again, and
-- serves the queue.
-- ARGV: slot, by (words, as in a value). Answers 1, or 0 if the slot was neither.
clock()
writable()
open()
local healed = P and P.heal(tonumber(ARGV[1]), ARGV[2])
settle({})
keep()
return healed and 1 or 0
