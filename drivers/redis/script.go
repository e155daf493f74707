package redis

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names a script by its SHA-1
	_ "embed"
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// window is how long a pushed grant lives: as long as a waiter that died in
	// the queue can cost the next one.
	window = 2 * time.Second
	// stale is how long a ticket may go without a beat before it is passed over.
	stale = 2 * time.Second
	// gone is how long it may before it is removed.
	gone = time.Minute
	// barring is how long a token stays barred if a copy of its acquire may be
	// on its way: longer than that can take.
	barring = 5 * time.Minute
	// keeping is how long what a lock leaves behind lives on.
	keeping = time.Minute
)

var (
	//go:embed head.lua
	headLua string
	//go:embed settle.lua
	settleLua string
	//go:embed acquire_plain.lua
	acquirePlainLua string
	//go:embed release_plain.lua
	releasePlainLua string
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
	//go:embed inspect.lua
	inspectLua string
	//go:embed stamp.lua
	stampLua string
)

// script is a Lua script as EVALSHA and EVAL want it.
type script struct {
	name   string
	source any // a string; kept as what a command's arguments are
	sha    any

	// declares says that a call has to name every key that it may touch, not
	// just the holder key, from which the script knows the others.
	declares  bool
	separator string // of the names of a lock
	bars      bool   // the key that bars a token is one of them
}

func newScript(name, source string) *script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return &script{name: name, source: source, sha: hex.EncodeToString(sum[:])}
}

// scripts are the operations of the queue engine.
type scripts struct {
	counted                                                       bool // the answer of PUBLISH counts every subscriber
	acquire, release, beat, confirm, renew, force, inspect, stamp *script
}

// newScripts prepares the scripts for locks whose names have this separator, on
// one server or on a Cluster.
func newScripts(cluster bool, separator string) *scripts {
	head := fmt.Sprintf("local cluster, sep = %v, %q\nlocal window, stale, gone, barring, keeping = %d, %d, %d, %d, %d\n",
		cluster, separator, window.Milliseconds(), stale.Milliseconds(), gone.Milliseconds(), barring.Milliseconds(), keeping.Milliseconds())
	onLock := func(name, short, source string) *script {
		s := newScript(name, head+short+headLua+source)
		s.declares, s.separator = cluster, separator
		s.bars = name == "acquire" || name == "release" || name == "stamp"
		return s
	}
	repaired := func(name, short, body string) *script { return onLock(name, short, settleLua+body) }
	return &scripts{
		counted: !cluster,
		acquire: repaired("acquire", acquirePlainLua, acquireLua),
		release: repaired("release", releasePlainLua, releaseLua),
		beat:    repaired("beat", "", beatLua),
		confirm: repaired("confirm", "", confirmLua),
		renew:   newScript("renew", renewLua),
		force:   repaired("force", "", forceLua),
		inspect: repaired("inspect", "", inspectLua),
		stamp:   onLock("stamp", "", stampLua),
	}
}
