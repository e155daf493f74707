-- The fast path of release for a slot that is handed back clean and has not expired, if
-- the pool has no ticket and no bar. It has the effect of the whole script. The slot is
-- the last argument.
if ARGV[4] == 'free' and ARGV[2] == '0' and ARGV[3] == '0' and ARGV[11] then
  local call, match, sub, H, token, slot = redis.call, string.match, string.sub, KEYS[1], ARGV[1], ARGV[11]
  local L, Q, D, S
  if declared then L, Q, D, S = unpack(KEYS, 2, 5) else
    L, Q, D, S = H .. sep .. 'state', H .. sep .. 'order', H .. sep .. 'due', H .. sep .. 'slots'
  end
  local kept = call('hmget', L, 'pool', 'r' .. slot, slot == '0' and 'h0' or 'r0')
  local size, top = match(kept[1] or '', '^3 (%d+) (%d+) ')
  local record = kept[2] or ''
  local lasts = sub(record, 3, 2 + #token) == token and match(record, '^\n%d+\n[^\n]*\n[^\n]*\n[^\n]*\n()', 3 + #token)
  local ends = lasts and string.find(record, '\n', lasts, true)
  if top and top + 0 < size + 0 and ends and call('exists', Q, D) == 0 then
    -- The lease of slot 0 expires without a call: the token shows whether it has.
    local zero = slot == '0' and token or match(kept[3] or '', '^3\n([^\n]+)')
    local v = zero and call('getrange', H, 0, #zero - 1)
    local ms = 0
    if slot ~= '0' then
      local t = call('time')
      ms = math.floor((t[1] * 1000000 + t[2]) / 1000)
    end
    if v == zero and (slot == '0' or call('zcount', S, '10000000000', ms) == 0) then
      if slot == '0' then call('del', H) else call('hdel', L, 's' .. slot, 'h' .. token) end
      call('hset', L, 'r' .. slot, '3\n\n' .. ARGV[5] .. '\n\n\n\n' .. sub(record, lasts, ends) .. ARGV[6] .. '\n')
      call('zadd', S, slot, slot)
      -- The keys live for a minute after the last lease. A TTL that is up to 5 s shorter
      -- stays, which saves two commands in most cycles. P10
      local left = call('pttl', L)
      if left >= 0 and left < keeping - 5000 or
          left > keeping and (slot == '0' or not zero) and call('zcount', S, 0, '(20000') == top + 1 then -- every slot is free
        call('pexpire', L, keeping)
        call('pexpire', S, keeping)
      end
      return 1
    end
  end
end
