-- reset: removes the logs and the pause. A log without a field in the state counts
-- as empty, and expires. A second copy has no effect. ARGV: id of this call.
local id = ARGV[arg + 1]
returning()
forget()
if call('hexists', T, id) == 1 then return 0 end
local gone = {}
for _, field in ipairs(call('hkeys', S)) do
  if field ~= 'head' then gone[#gone + 1] = field end
end
if gone[1] then call('hdel', S, unpack(gone)) end
expires = 0 -- no log and no pause needs the state any more
remember(id, 's', now + barring)
return 1
