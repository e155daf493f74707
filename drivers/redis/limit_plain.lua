-- The fast path of take: a grant that only adds an entry to each log. Most calls are
-- such grants, so it makes as few commands, functions and tables as possible. It
-- decides as the whole script, which handles all other calls.
local function plain()
  local call, rates = redis.call, #KEYS - 4
  local arg = 2 * rates
  if rates > 2 or ARGV[arg + 2] ~= '0' or ARGV[arg + 3] ~= '' or call('exists', KEYS[3]) == 1 then return end
  local cost = tonumber(ARGV[arg + 1])
  local state = call('hmget', KEYS[1], 'head', 'pause', ARGV[2], ARGV[arg])
  local latest = not state[2] and state[1] and string.match(state[1], '^1 (%d+) 0 ')
  if not latest or cost == 0 then return end
  local t = call('time')
  local now = t[1] * 1000000 + t[2]
  if now < latest + 0 then return end

  local by, left, ends, scores, times, past = -1, 0, 0, {}, {}, {}
  for i = 1, rates do
    local n, seen = string.match(state[i + 2] or '', '^(%d+) (%d+)$')
    if n ~= ARGV[2 * i - 1] or now - seen >= refresh then return end
    n = tonumber(n)
    local key, per = KEYS[i + 4], tonumber(ARGV[2 * i])
    local e, last = call('zrange', key, 0, 2, 'withscores')
    if e[6] then last = call('zrange', key, -1, -1, 'withscores') else last = {e[#e - 1], e[#e]} end
    if not last[1] then return end
    local total, base = last[2] + cost, 0
    if e[1] + per <= now then
      base = e[2]
      if e[3] and e[3] + per <= now then
        if not e[5] or e[5] + per <= now then return end
        base, past[i] = e[4], true
      end
    end
    local rest = n - total + base
    if rest < 0 then return end
    local time, newest = now, last[1] + 0
    if n > exact then
      local tick = math.floor(per / exact)
      time = math.ceil(now / tick) * tick
      if newest > time then return end
    elseif newest > now then
      return
    end
    if by < 0 or rest < left then by, left, ends = i - 1, rest, time + per - now end
    scores[i], times[i] = string.format('%.0f', total), string.format('%.0f', time)
  end
  for i = 1, rates do -- W3
    call('zadd', KEYS[i + 4], scores[i], times[i])
    if past[i] then call('zremrangebyrank', KEYS[i + 4], 0, 0) end
  end
  return {1, now, 0, 0, by, left, ends}
end
local answer = plain()
if answer then return answer end

