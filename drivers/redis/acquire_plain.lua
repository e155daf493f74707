-- The short way of acquire, whose arguments and answer acquire.lua explains: a
-- plain lock that is free, and beside which nothing is kept: no queue, no pool,
-- no bar. It stands before everything else, and is written out, because to make
-- a function in Lua costs as much as to ask Redis for something.
do
  local call, H, token, span = redis.call, KEYS[1], ARGV[1], ARGV[5]
  local L, M
  if declared then L, M = KEYS[2], KEYS[6] else L, M = H .. sep .. 'state', mark end
  if ARGV[4] == '1' and call('exists', H, L) == 0 then
    local t = call('time')
    local first = t[1] * 1000000 + t[2]
    local last = tonumber(redis.pcall('get', M))
    if last and last >= first and last < 9e15 then first = last + 1 end
    local digits = string.format('%.0f', first)
    call('set', H, token .. '{"v":2,"fence":' .. digits .. ',"span":' .. span .. ARGV[6], 'px', ARGV[2])
    call('set', M, span == '1' and digits or string.format('%.0f', first + span - 1))
    return {1, first, 0, 0, span + 0}
  end
end
