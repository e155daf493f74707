-- lease reports whether a value with this TTL in ms is a lease, of this package or of
-- redislock without metadata, and not the data of another program. A lease begins with
-- a token of 22 characters. After the token it ends, or it has the version of the
-- format and the fence, or the text in their place that the engine redislock writes
-- until stamp. A lease expires; in its last millisecond its TTL is 0. lease fails
-- because of a lease in another version of the format. L24
local function lease(v, life)
  if life < 0 or select(2, string.find(v, '^[%w_-]*')) ~= 22 then return false end
  if #v == 22 or string.find(v, '^{%-', 23) then return true end
  local version = string.match(v, '^ (%d+) %d+ ', 23) or string.match(v, '^{"v":(%d+),"fence":', 23)
  if version and version ~= '3' then other(version) end
  return version
end
