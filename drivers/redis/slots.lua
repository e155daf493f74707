-- The pool of a key, and the states of its slots.

-- size is the number of slots and top the highest slot that was ever granted. Both are
-- nil unless the key is a pool. rest is the time for which a slot rests, and P has the
-- functions below. Both are nil unless the slots have states.
local size, top, rest, P

-- The score of a slot in the zset S is its state: from taken on, held until that time
-- in ms; below, free, the lowest number first.
local taken = 1e10

-- far is added to the two times that the zset D has beside the due ones, so that they
-- are never due.
local far = 1e15

local function resized(n)
  size = n
  call('hset', L, 'pool', rest and format('3 %d %d %.0f', size, top, rest) or format('3 %d %d', size, top))
end

-- states returns the functions on slots with states. A script calls it only if its
-- key is such a pool, because the definition of a function in Lua takes as long as a
-- command of Redis.
--
-- The score of a slot in S is its state: below dirty, clean and free; from dirty
-- on, dirty; from withdrawn on, withdrawn; from taken on, held until that time in
-- ms; below 0, resting until that time, negated. Slot 0 is not in S while H is
-- there, nor is a slot above top, of which nothing is known.
--
-- The field r<slot> of L is the record of a slot, in lines: version, the token while
-- it is held, strikes, why it is dirty ('' if it is clean), since when, the process
-- that left it so and its last holder (both as in a value), note and reason (JSON).
local function states()
  local dirty, withdrawn = 1e4, 2e4
  local lines = '^3\n' .. string.rep('([^\n]*)\n', 7) .. '([^\n]*)$'
  local TOKEN, STRIKES, WHY, AT, BY, LAST, NOTE, REASON = 1, 2, 3, 4, 5, 6, 7, 8
  local T = {}

  local function read(slot)
    local stored = call('hget', L, 'r' .. slot)
    if not stored then return {'', '0', 'unknown', '', '', '', '', ''} end
    local r = {string.match(stored, lines)}
    if not r[1] then other(stored) end
    return r
  end

  local function write(slot, r) call('hset', L, 'r' .. slot, '3\n' .. table.concat(r, '\n')) end

  local function move(slot, score) call('zadd', S, format('%.0f', score), slot) end

  local function soil(r, why, by)
    r[TOKEN], r[WHY], r[AT], r[BY] = '', why, format('%.0f', ms), by
  end

  -- found returns the record of a slot, for its grant.
  function T.found(slot) return '3\n' .. table.concat(read(slot), '\n') end

  function T.take(slot, token, tail)
    local r = read(slot)
    r[TOKEN], r[LAST] = token, string.match(tail, '^ %S+ ?(.*)$') or ''
    write(slot, r)
    if slot == 0 then call('zrem', S, 0) end
  end

  -- lose makes a slot dirty that its holder does not hand back. The rest begins with
  -- the call that sees the loss. P4, P6
  function T.lose(slot, why)
    local r = read(slot)
    soil(r, why, r[LAST])
    write(slot, r)
    move(slot, rest > 0 and -(ms + rest) or dirty + slot)
  end

  -- handBack gives a slot the state that its holder reports. The status 'back' is of a
  -- holder that has not touched it: the state stays. If strikes is '', the strikes,
  -- note and reason stay.
  function T.handBack(slot, status, strikes, note, reason, why, at, by)
    local r = read(slot)
    r[TOKEN] = ''
    if status ~= 'back' then
      if strikes ~= '' then r[STRIKES], r[NOTE], r[REASON] = strikes, note, reason end
      r[WHY], r[AT], r[BY] = why, at, by
    end
    if status == 'withdrawn' then
      move(slot, withdrawn + slot)
    elseif r[WHY] ~= '' then
      move(slot, dirty + slot)
    elseif slot < size then
      move(slot, slot)
    else
      soil(r, 'shrunk', r[LAST]) -- P9
      move(slot, dirty + slot)
    end
    write(slot, r)
  end

  -- heal reports whether the slot was resting or withdrawn.
  function T.heal(slot, by)
    local score = tonumber(call('zscore', S, slot))
    if not score or score >= taken or score >= 0 and score < withdrawn then return false end
    local r = read(slot)
    soil(r, 'healed', by)
    r[STRIKES], r[REASON] = '0', ''
    write(slot, r)
    move(slot, dirty + slot)
    return true
  end

  -- begin makes a plain pool, or a key without a pool, a pool with states. The slots
  -- that are held get their records.
  function T.begin()
    for slot = 0, top do
      local v
      if slot == 0 then v = call('get', H) else v = call('hget', L, 's' .. slot) end
      if v then
        T.take(slot, string.match(v, '^[%w_-]*'), string.match(v, '^%S+ 3 %d+ %d+ %S+( .*)$') or '')
      else
        move(slot, dirty + slot)
      end
    end
    T.open()
  end

  function T.shrink(n)
    for _, slot in ipairs(call('zrangebyscore', S, n, '(' .. dirty)) do
      local r = read(slot)
      soil(r, 'shrunk', r[LAST])
      write(slot, r)
      move(slot, dirty + slot)
    end
  end

  -- open records the changes that happen without a call: slot 0 has expired or was
  -- obtained by redislock, a rest is over, data was lost.
  function T.open()
    if top > 0 and call('exists', S) == 0 then
      for slot = 1, top do
        local v = call('hget', L, 's' .. slot)
        if v then call('hdel', L, 's' .. slot, 'h' .. string.sub(v, 1, 22)) end
        call('hdel', L, 'r' .. slot)
        move(slot, dirty + slot)
      end
    end
    for _, slot in ipairs(call('zrevrangebyscore', S, '(0', format('-%.0f', ms))) do move(slot, dirty + slot) end
    local v = call('get', H)
    if v and top < 0 then
      top = 0
      resized(size)
    end
    if elsewhere then return call('zrem', S, 0) end
    if top < 0 then return end
    local r = read(0)
    local lost = r[TOKEN] ~= '' and (not v or string.sub(v, 1, #r[TOKEN]) ~= r[TOKEN])
    if lost then
      T.lose(0, 'expired')
    elseif not v and not call('zscore', S, 0) then
      call('hdel', L, 'r0') -- a holder without a record has ended
      move(0, dirty)
    end
    if v then call('zrem', S, 0) end
  end

  -- pick returns the slot for a ticket: a clean slot before a dirty one, the last slot
  -- of its process before the lowest one, and the slot to avoid after all others. P6, P7
  function T.pick(prefer, avoid)
    local function lowest(low)
      for _, slot in ipairs(call('zrangebyscore', S, low, '(' .. low + size, 'limit', 0, 2)) do
        if tonumber(slot) ~= avoid then return tonumber(slot) end
      end
    end
    local score = prefer ~= avoid and prefer >= 0 and prefer < size and tonumber(call('zscore', S, prefer))
    if score and score >= 0 and score < dirty then return prefer end
    local slot = lowest(0) or lowest(dirty)
    if slot then return slot end
    if top + 1 < size and top + 1 ~= avoid then return top + 1 end
    if top + 2 < size then -- the slot to avoid is skipped, and gets a state
      move(avoid, dirty + avoid)
      return avoid + 1
    end
    score = avoid >= 0 and avoid < size and tonumber(call('zscore', S, avoid))
    if score and score >= 0 and score < dirty + size then return avoid end
    if top + 1 < size then return top + 1 end
  end

  -- gone reports whether every slot is withdrawn.
  function T.gone() return call('zcount', S, withdrawn, '(' .. withdrawn + size) >= size end

  -- life returns the time in ms for which the records must be kept, or far for no
  -- limit: a withdrawn slot stays withdrawn until it is healed. P8, P10
  function T.life()
    if call('zcount', S, withdrawn, '(' .. withdrawn + 4096) > 0 then return far end
    local longest = tonumber(call('zrangebyscore', S, '-inf', '(0', 'withscores', 'limit', 0, 1)[2])
    return longest and -longest - ms or 0
  end

  -- rested returns the time in ms until a slot has rested, or nil if none rests.
  function T.rested()
    local first = tonumber(call('zrevrangebyscore', S, '(0', '-inf', 'withscores', 'limit', 0, 1)[2])
    return first and math.max(-first - ms, 0)
  end

  -- list returns number, state, time left of a rest, and record of each slot,
  -- and writes nothing.
  function T.list()
    local out, score, all = {}, {}, call('zrange', S, 0, -1, 'withscores')
    local highest = size - 1
    for i = 1, #all, 2 do
      local slot, at = tonumber(all[i]), tonumber(all[i + 1])
      score[slot] = at
      if at > math.max(ms, taken) and slot > highest then highest = slot end
    end
    local v = call('get', H)
    for slot = 0, highest do
      local at, stored = score[slot], call('hget', L, 'r' .. slot) or ''
      local state, life = 'dirty', 0
      if slot == 0 and v or at and at >= taken and at > ms then
        state = 'held'
      elseif at and at >= 0 and at < dirty then
        state = 'free'
      elseif at and at >= withdrawn and at < taken then
        state = 'withdrawn'
      elseif at and -at > ms then
        state, life = 'resting', -at - ms
      elseif at and at >= taken or slot == 0 and string.find(stored, '^3\n[%w_-]') then -- expired, and no call has seen it
        state, life = rest > 0 and 'resting' or 'dirty', rest
      end
      if slot < size or state == 'held' then
        local n = #out
        out[n + 1], out[n + 2], out[n + 3], out[n + 4] = slot, state, life, stored
      end
    end
    return out
  end

  return T
end
