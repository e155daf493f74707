package redis

// ScriptNames are the names of the scripts by their SHA-1, for tests that watch
// the wire.
func ScriptNames() map[string]string {
	names := map[string]string{}
	for _, s := range []*scripts{newScripts(false, ":"), newScripts(false, " "), newScripts(true, ":")} {
		for _, one := range []*script{s.acquire, s.release, s.beat, s.confirm, s.renew, s.force, s.inspect, s.stamp} {
			names[one.sha.(string)] = one.name
		}
	}
	return names
}
