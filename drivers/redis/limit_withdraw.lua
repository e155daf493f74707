-- withdraw: ends a request of a ticket, returns its units if it was granted, and
-- refuses later copies of it. ARGV: ticket, seq.
local ticket, seq = ARGV[arg + 1], tonumber(ARGV[arg + 2])
returning()
forget()
local record = call('hget', T, ticket)
if record then
  local kind, had, units, at = match(record, '^(%a) (%d+) (%d+) (%d*)')
  if seq < tonumber(had) then return 0 end
  if kind == 'g' and seq == tonumber(had) and at ~= '0' then
    for _, l in ipairs(logs) do refund(l, tonumber(units), tonumber(at)) end
  end
  leave(ticket)
end
remember(ticket, format('g %.0f 0 0', seq), now + memory)
return 1
