-- pause: refuses all requests for a time, unless there is a longer pause. A second copy
-- has no effect. ARGV: id of this call, us, JSON that describes the pause.
local id, left = ARGV[arg + 1], tonumber(ARGV[arg + 2])
forget(id)
if call('hexists', T, id) == 1 then return 0 end
remember(id, 's', now + barring)
if left <= paused() then return 0 end
save(ceil(left / 1000) + keeping, 'pause', format('%.0f %s', now + left, ARGV[arg + 3]))
return 1
