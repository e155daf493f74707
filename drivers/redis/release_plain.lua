-- The fast paths of release, for a plain lock without a waiter, and for a plain lock
-- whose next waiter receives the push. Their arguments and answer are in release.lua.
-- They define no function, see acquire_plain.lua.
if not ARGV[2] then
  local call, H, token = redis.call, KEYS[1], ARGV[1]
  local L, Q, M
  if declared then L, Q, M = KEYS[2], KEYS[3], KEYS[6] else L, Q, M = H .. sep .. 'state', H .. sep .. 'order', mark end
  if call('getrange', H, 0, #token - 1) == token then
    if call('exists', L) == 0 then
      call('del', H)
      return 1
    end

    -- The head of the queue gets the offer although its heartbeats may be missing: the
    -- sweep of another waiter removes a dead ticket, and without another waiter nobody
    -- is delayed.
    local head = call('zpopmin', Q) -- fails if this server takes no writes, and exempts the later ones from the limit of memory
    local ticket = head[1]
    local kept = ticket and call('hmget', L, 'pool', ticket)
    local last = kept and redis.pcall('get', M)
    if kept and kept[2] and not kept[1] and type(last) ~= 'table' then
      local span, tail, inbox = string.match(kept[2], '^3 (%d+) %d+( (%S+).*)$')
      if span then
        local t = call('time')
        local first = t[1] * 1000000 + t[2]
        last = tonumber(last)
        if last and last >= first and last < 9e15 then first = last + 1 end
        local digits = string.format('%.0f', first)
        -- Before the push: a user that may not write the grant must not push it. If the
        -- script fails here, its missing record removes the ticket later. L6
        call('set', M, string.format('%.0f', first + span - 1))
        call('hdel', L, ticket)
        replicate(redis.REPL_AOF) -- see offer in settle.lua
        local heard = redis.pcall('publish', inboxes .. inbox, 'g2 ' .. ticket .. ' ' .. digits .. ' 0 ' .. H)
        replicate(redis.REPL_ALL)
        if not counted or heard ~= 0 then
          call('set', H, ticket .. ' 3 ' .. digits .. ' ' .. span .. ' 0p' .. tail, 'px', window)
          return type(heard) == 'number' and 1 or 2
        end
      end
    end
    if ticket then call('zadd', Q, head[2], ticket) end
  end
end
