-- The short ways of release, whose arguments and answer release.lua explains: of
-- a plain lock that nobody waits for, and of one whose next waiter is there. They
-- stand before everything else, and are written out, because to make a function
-- in Lua costs as much as to ask Redis for something.
if ARGV[2] == '0' and ARGV[3] == '0' then
  local call, H, token = redis.call, KEYS[1], ARGV[1]
  local F, Q, T, P
  if cluster then
    F, Q, T, P = KEYS[2], KEYS[3], KEYS[4], KEYS[6]
  else
    local s = H .. sep
    F, Q, T, P = s .. 'fence', s .. 'queue', s .. 'tickets', s .. 'pool'
  end
  local mine = call('get', H)
  if mine and string.sub(mine, 1, #token) == token and call('exists', P) == 0 then
    local head = call('zrange', Q, 0, 0, 'withscores')
    local ticket = head[1]
    if not ticket then
      call('del', H)
      return {1, 0}
    end

    -- Nothing can be wrong with what offer in settle.lua would look at, or it
    -- does the rest.
    local record = call('hget', T, ticket)
    local beaten, span, inbox, rest = string.match(record or '', '^1 (%d+) (%d+) %d+ ,"inbox":"([^"]*)"(.*)$')
    local fence, had = string.match(mine, '^{"fence":(%d+),"span":(%d+)', #token + 1)
    if beaten and fence then
      local t = call('time')
      local first = t[1] * 1000000 + t[2]
      if math.floor(first / 1000) - beaten <= stale then
        local last, ahead = fence + had - 1, 0
        if last >= first then
          ahead = math.ceil((last + span - first) / 1000)
          first = last + 1
        end
        local digits = string.format('%.0f', first)
        -- Taking the ticket out comes first: it fails where nothing can be
        -- written, and exempts what follows from the limit of memory.
        call('zrem', Q, ticket)
        call('hdel', T, ticket)
        local heard = redis.pcall('publish', inbox, 'g ' .. ticket .. ' ' .. digits .. ' 0 ' .. H)
        if cluster or heard ~= 0 then
          call('set', F, string.format('%.0f', first + span - 1), 'px', keeping + ahead)
          call('set', H, ticket .. '{"fence":' .. digits .. ',"span":' .. span .. ',"pushed":1,"inbox":"' .. inbox .. '"' .. rest, 'px', window)
          return {1, 0}
        end
        call('zadd', Q, head[2], ticket)
        call('hset', T, ticket, record)
      end
    end
  end
end
