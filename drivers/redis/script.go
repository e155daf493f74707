package redis

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names a script by its SHA-1
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

const (
	// window is the life of a pushed grant: a waiter that died in the queue
	// delays the next one by as much at most.
	window = 2 * time.Second
	// stale is the time without a heartbeat after which a ticket is
	// removed.
	stale = 2 * time.Second
	// heartbeat is the grace period for all tickets after a time without
	// any calls: longer than the longest interval between heartbeats.
	heartbeat = time.Second
	// barring is the time for which the server refuses a token after its
	// release, if a copy of its acquire may still arrive. It is longer than
	// the delay of any copy.
	barring = time.Minute
	// keeping is the TTL of the keys beside the holder after their last use.
	keeping = time.Minute
)

var (
	//go:embed head.lua
	headLua string
	//go:embed slots.lua
	slotsLua string
	//go:embed settle.lua
	settleLua string
	//go:embed lease.lua
	leaseLua string
	//go:embed acquire_plain.lua
	acquirePlainLua string
	//go:embed acquire_queue.lua
	acquireQueueLua string
	//go:embed acquire_pool.lua
	acquirePoolLua string
	//go:embed release_plain.lua
	releasePlainLua string
	//go:embed release_pool.lua
	releasePoolLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed release.lua
	releaseLua string
	//go:embed beat.lua
	beatLua string
	//go:embed confirm.lua
	confirmLua string
	//go:embed renew.lua
	renewLua string
	//go:embed force.lua
	forceLua string
	//go:embed heal.lua
	healLua string
	//go:embed inspect.lua
	inspectLua string
	//go:embed stamp.lua
	stampLua string
	//go:embed run.lua
	runLua string
)

// script is a Lua script as EVALSHA and EVAL take it.
type script struct {
	name   string
	source string
	sha    string
	layout *layout // of the keys that a call declares; nil if it names the holder keys alone
}

func newScript(name, source string, l *layout) *script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return &script{name: name, source: source, sha: hex.EncodeToString(sum[:]), layout: l}
}

// scripts are the operations of the queue engine.
type scripts struct {
	counted                                                             bool // PUBLISH returns the number of all subscribers
	acquire, release, beat, confirm, renew, force, heal, inspect, stamp *script
	run                                                                 *script
}

// newScripts prepares the scripts for the keys of l. moving makes those that
// work on a slot of a Cluster while it is being moved: they get the holder key
// alone, and their first arguments are floor, elsewhere and the clock mark, which
// head.lua explains.
func newScripts(l *layout, moving bool) *scripts {
	declared := l.declared() && !moving
	head := fmt.Sprintf("local sep, mark, replicate = %s, %s, redis.set_repl or function() end\n"+
		"local counted, declared, moving, inboxes = %v, %v, %v, %s\n"+
		"local window, stale, heartbeat, barring, keeping, room = %d, %d, %d, %d, %d, %d\n",
		luaString(l.separator()), l.constantMark(), !l.cluster, declared, moving, luaString(inboxes),
		window.Milliseconds(), stale.Milliseconds(), heartbeat.Milliseconds(),
		barring.Milliseconds(), keeping.Milliseconds(), driver.MaxTickets)
	edited := l.edit
	if edited == nil {
		edited = func(source string) string { return source }
	}
	keys := l
	if !declared {
		keys = nil
	}
	onLock := func(name, fast string, parts ...string) *script {
		if moving {
			fast = "" // it looks at several keys in one command
		}
		return newScript(name, edited(head+fast+headLua+strings.Join(parts, "")), keys)
	}
	repair := slotsLua + settleLua
	return &scripts{
		counted: !l.cluster,
		acquire: onLock("acquire", acquirePlainLua+acquireQueueLua+acquirePoolLua, repair, acquireLua),
		release: onLock("release", releasePlainLua+releasePoolLua, repair, releaseLua),
		beat:    onLock("beat", "", repair, beatLua),
		confirm: onLock("confirm", "", repair, confirmLua),
		renew:   newScript("renew", edited(head+renewLua), nil),
		force:   onLock("force", "", repair, leaseLua, forceLua),
		heal:    onLock("heal", "", repair, healLua),
		inspect: onLock("inspect", "", repair, leaseLua, inspectLua),
		stamp:   onLock("stamp", "", stampLua),
		run:     newScript("run", edited(runLua), nil),
	}
}

// all returns every script.
func (s *scripts) all() []*script {
	return []*script{s.acquire, s.release, s.beat, s.confirm, s.renew, s.force, s.heal, s.inspect, s.stamp, s.run}
}

// commandCall matches the call of a command in a script.
var commandCall = regexp.MustCompile(`call\('([a-z]+)'`)

// commandsOf returns the sorted names of the commands that scripts call.
func commandsOf(all []*script) []string {
	names := map[string]struct{}{}
	for _, s := range all {
		for _, call := range commandCall.FindAllStringSubmatch(s.source, -1) {
			names[call[1]] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// findDisabled fails with the name of a command of ARGV that the server does not have.
// The server refuses the others for the number of their arguments, except TIME, and counts
// that as rejected calls.
const findDisabled = `for _, name in ipairs(ARGV) do
  local r = redis.pcall(name)
  if type(r) == 'table' and r.err and string.find(r.err, 'nknown .*ommand') then
    return redis.error_reply(r.err .. ": '" .. name .. "'")
  end
end
return 1`

// luaString quotes s for Lua 5.1, which knows no \x or \u.
func luaString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, "\\%03d", c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
