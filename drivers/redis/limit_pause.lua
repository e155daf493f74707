-- pause: refuses all requests for a time, unless there is a longer pause. ARGV: us,
-- JSON that describes the pause.
local left = tonumber(ARGV[arg + 1])
if left <= paused() then return 0 end
save(ceil(left / 1000) + keeping, 'pause', format('%.0f %s', now + left, ARGV[arg + 2]))
return 1
