-- The fast path of acquire to a slot with a state: the last slot of this process, if
-- it is clean, and the pool has no ticket, no bar and no expired slot. It has the effect
-- of the whole script. It defines no function, see acquire_plain.lua.
do
  local match, find, sub, token = string.match, string.find, string.sub, ARGV[1]
  local slots, rest, slot = match(ARGV[4], '^(%d+);%d;(%d+);(%d+);%-1$')
  if slots and ARGV[5] == '1' then
    local call, H, ttl = redis.call, KEYS[1], ARGV[2]
    local L, Q, D, S, M
    if declared then L, Q, D, S, M = unpack(KEYS, 2, 6) else
      L, Q, D, S, M = H .. sep .. 'state', H .. sep .. 'order', H .. sep .. 'due', H .. sep .. 'slots', mark
    end
    local kept = call('hmget', L, 'pool', 'r' .. slot, 'h' .. token, slot == '0' and 'h0' or 'r0')
    local size, top, rested = match(kept[1] or '', '^3 (%d+) (%d+) (%d+)$')
    local strikes, lasts = match(kept[2] or '', '^3\n\n(%d+)\n\n\n\n()') -- of a record that is clean
    local ends = lasts and find(kept[2], '\n', lasts, true)
    local zero = kept[4] and match(kept[4], '^3\n([^\n]+)') -- the token on slot 0, whose lease expires without a call
    local v = zero and call('getrange', H, 0, #zero - 1)
    -- A repeated call is known by its token. While top is below the size, every held
    -- slot counts to the size, so a free slot may be granted.
    if size == slots and rested == rest and top + 0 < slots + 0 and ends and not kept[3] and
        (not zero or zero ~= token and v == zero) and call('zscore', S, slot) == slot and
        (slot == '0' and call('exists', H, Q, D) or call('exists', Q, D)) == 0 then
      local t = call('time')
      local first = t[1] .. sub('00000' .. t[2], -6) -- as text, see acquire_plain.lua
      local ms = sub(first, 1, -4)
      if call('zcount', S, '10000000000', ms) == 0 then
        local last = redis.pcall('get', M)
        if last and (#last ~= #first or last >= first) then
          if type(last) == 'table' and not find(last.err, '^WRONGTYPE') then return last end
          last = tonumber(last)
          if last and last >= first + 0 and last < 9e15 then first = string.format('%.0f', last + 1) end
        end
        local value = token .. ' 3 ' .. first .. ' 1 0'
        local after = sub(kept[2], ends) -- note and reason
        local record = '3\n' .. token .. '\n' .. strikes .. '\n\n\n\n' .. match(ARGV[6], '^ %S+ ?(.*)$') .. after
        if slot == '0' then
          call('set', H, value .. 'b' .. ARGV[6], 'px', ttl)
          call('hset', L, 'r0', record)
          call('zrem', S, 0)
        else
          call('hset', L, 's' .. slot, value .. ARGV[6], 'h' .. token, slot, 'r' .. slot, record)
          call('zadd', S, string.format('%.0f', ms + ttl), slot)
        end
        call('set', M, first)
        -- A TTL that is left from the last lease stays if it covers this lease and half
        -- of keeping; a renewal prolongs it. If slots rest it has to cover all of
        -- keeping, because the rest begins with the call that sees the loss.
        local left = call('pttl', L)
        if left >= 0 and left < ttl + (rested == '0' and keeping / 2 or keeping) then
          call('pexpire', L, keeping + ttl)
          call('pexpire', S, keeping + ttl)
        end
        return {1, first + 0, slot + 0, 0, 1, '3\n\n' .. strikes .. '\n\n\n\n' .. after}
      end
    end
  end
end
