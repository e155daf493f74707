-- lease reports whether a value with this time to live is a lease, of this
-- package or of redislock without metadata, and not what somebody else keeps at
-- the key: a token of 22 characters, at its end, before the version of the format
-- and the fence, or before what the engine redislock puts in their place until
-- stamp. A lease expires; in its last millisecond 0 is left. It fails for a lease
-- that another version has written. L24
local function lease(v, life)
  if life < 0 or select(2, string.find(v, '^[%w_-]*')) ~= 22 then return false end
  if #v == 22 or string.find(v, '^{%-', 23) then return true end
  local version = string.match(v, '^ (%d+) %d+ ', 23) or string.match(v, '^{"v":(%d+),"fence":', 23)
  if version and version ~= '3' then other(version) end
  return version
end
