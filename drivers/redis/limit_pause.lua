-- pause: refuses all requests for a time, unless there is a longer pause. A second copy
-- has no effect. ARGV: id of this call, us, JSON that describes the pause.
local id, left = ARGV[arg + 1], tonumber(ARGV[arg + 2])
forget(id)
if call('hexists', T, id) == 1 then return 0 end
if left > paused() then -- before its id: a call that ends after the id is not done again
  save(ceil(left / 1000) + keeping, 'pause', format('%.0f %s', now + left, ARGV[arg + 3]))
end
remember(id, 's', now + barring)
return 1
