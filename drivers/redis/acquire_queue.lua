-- The fast path of acquire into the queue of a plain lock that is held and needs no
-- repair: no pool, no bar, no ticket of this token, no due ticket, and a call about
-- this lock within the last heartbeat. It has the effect of the whole script. It defines
-- no function, see acquire_plain.lua. Each condition keeps a rule, and has a mutant
-- without it in queuemutants_test.go, except the test of seen: without an earlier call
-- there is nothing to subtract.
if ARGV[4] == '1' and ARGV[3] == '1' and not ARGV[7] then
  local call, H, token = redis.call, KEYS[1], ARGV[1]
  local L, Q, D
  if declared then L, Q, D = unpack(KEYS, 2, 4) else L, Q, D = H .. sep .. 'state', H .. sep .. 'order', H .. sep .. 'due' end
  local left = call('pttl', H)
  local holder = left > 0 and call('getrange', H, 0, #token - 1) or token
  local kept = holder ~= token and call('hmget', L, 'pool', '!' .. token, token)
  local seen = kept and not (kept[1] or kept[2] or kept[3]) and call('zscore', D, 'seen')
  if seen then
    local t = call('time')
    local us = t[1] * 1000000 + t[2]
    local ms = math.floor(us / 1000)
    local ago = ms - (seen - 1e15)
    if ago >= 0 and ago <= heartbeat and call('zcount', D, '-inf', ms) == 0 then
      local last = call('zrange', Q, -1, -1, 'withscores')[2]
      local at = math.max(us, (last or 0) + 1)
      local position = last and call('zcard', Q) + 1 or 1
      if position <= room then -- L10
        local format = string.format
        call('zadd', Q, format('%.0f', at), token) -- fails on a full server. L21
        call('hset', L, token, '3 ' .. ARGV[5] .. ' 1' .. ARGV[6])
        call('zadd', D, format('%.0f', ms + stale), token, format('%.0f', 1e15 + ms), 'seen')
        call('zrem', D, holder) -- a hand-over leaves it there, and it would become due
        -- A new queue has no TTL. If no heartbeat comes, only this prolongs the keys,
        -- in the first call of each second. L18
        local turn = ms % heartbeat < ago
        if not last or turn then
          call('pexpire', L, keeping)
          call('pexpire', Q, keeping)
        end
        if turn then call('pexpire', D, keeping) end
        return {2, at, position, left, 0}
      end
    end
  end
end
