-- settle: returns units of a grant to their own windows, or records a debt now. A
-- second copy has no effect. ARGV: id of the settlement, units (negative for a
-- debt), time of the grant.
local id, units, at = ARGV[arg + 1], tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
returning()
forget()
if call('hexists', T, id) == 1 then return 0 end
if units > 0 then
  for _, l in ipairs(logs) do refund(l, units, at) end
else
  for _, l in ipairs(logs) do l.coarse = l.coarse or call('zcard', l.key) >= 2 * exact end -- debts have no limit
  grow(-units)
end
remember(id, 's', now + barring) -- a copy may arrive as late as a copy of an acquire
return 1
