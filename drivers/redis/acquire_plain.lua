-- The short way of acquire, whose arguments and answer acquire.lua explains: a
-- plain lock that is free and that nobody waits for. It stands before everything
-- else, and is written out, because to make a function in Lua costs as much as
-- to ask Redis for something.
do
  local call, H, token, span = redis.call, KEYS[1], ARGV[1], ARGV[5]
  local F, Q, X, P, barred
  if cluster then
    F, Q, X, P, barred = KEYS[2], KEYS[3], KEYS[5], KEYS[6], KEYS[9]
  else
    local s = H .. sep
    F, Q, X, P, barred = s .. 'fence', s .. 'queue', s .. 'forced', s .. 'pool', s .. 'barred' .. sep .. token
  end
  if ARGV[4] == '1' and call('exists', H, Q, P, X, barred) == 0 then
    local t = call('time')
    local first = t[1] * 1000000 + t[2]
    local last, ahead = tonumber(redis.pcall('get', F)), 0
    if last and last >= first and last < 9e15 then
      ahead = math.ceil((last + span - first) / 1000)
      first = last + 1
    end
    local digits = string.format('%.0f', first)
    call('set', H, token .. '{"fence":' .. digits .. ',"span":' .. span .. ARGV[6], 'px', ARGV[2])
    call('set', F, span == '1' and digits or string.format('%.0f', first + span - 1), 'px', keeping + ahead)
    return {1, first, 0, 0, span + 0}
  end
end
