-- stamp: writes fences into the value of a grant that redislock has obtained. They
-- come from the mark that all engines share.
-- ARGV: token, span, tail.
-- Answers {1, fence}; {0} if the token does not hold the key; {-1} if the token is
-- barred, after which it no longer holds the key.
local token, span, tail = unpack(ARGV)

local v = call('get', H)
if not v or string.sub(v, 1, #token) ~= token then return {0} end
local had = string.match(v, '^ 3 (%d+)', #token + 1)
if had then return {1, tonumber(had)} end
if barred(token) then
  call('del', H)
  return {-1}
end

local left = call('pttl', H)
if left <= 0 then return {0} end
clock()
local first = fence()
reserve(first, span)
call('set', H, value(token, first, span, '0', tail), 'px', left)
return {1, first}
