-- The short way of release, whose arguments and answer release.lua explains: a
-- plain lock that nobody waits for.
local token, loose, tell = unpack(ARGV)

if loose == '0' and tell == '0' and call('getrange', H, 0, #token - 1) == token and call('exists', Q, P) == 0 then
  call('del', H)
  return {1, 0}
end
