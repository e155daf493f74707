package redis

import (
	"context"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// ScriptNames are the names of the scripts by their SHA-1, for tests that watch
// the wire. edit is the one of [Edited], or nil.
func ScriptNames(edit func(source string) string) map[string]string {
	names := map[string]string{}
	edited := func(t template, cluster bool) *layout { // without marks, which no script contains
		return &layout{template: t, cluster: cluster, edit: edit}
	}
	tagged, _ := newTemplate(DefaultKey, "")
	plain, _ := newTemplate("%s", "")
	for _, s := range []*scripts{
		newScripts(edited(tagged, false), false), newScripts(edited(plain, false), false),
		newScripts(edited(tagged, true), false), newScripts(edited(tagged, true), true),
	} {
		for _, one := range s.all() {
			names[one.sha] = one.name
		}
	}
	for _, one := range newLimitScripts(nil).all() {
		names[one.sha] = one.name
	}
	return names
}

// Queued is how many requests for key have heard from the server that they are
// queued: only these ride out an outage.
func Queued(d driver.Driver, key string) (n int) {
	q := d.(*queue)
	return len(q.claims.tickets()[q.layout.holder(key)])
}

// ClusterNames returns the holder key and the clock mark of a lock on a Cluster.
func ClusterNames(key string) (holder, mark string) {
	t, _ := newTemplate(DefaultKey, "")
	holder = t.holder(key)
	return holder, newLayout(t, true, false).mark(holder)
}

// Edited returns c with scripts that are changed before they are sent.
func Edited(c Config, edit func(source string) string) Config {
	c.edit = edit
	return c
}

// LeaseScript reports whether a value with so many ms left is a lease.
var LeaseScript = "local function other(v) error('other ' .. v) end\n" + leaseLua + "\nreturn lease(ARGV[1], tonumber(ARGV[2])) and 1 or 0"

// Beat sends the heartbeats of d, and returns the time until the next ones.
func Beat(ctx context.Context, d driver.Driver) time.Duration { return d.(*queue).sendAll(ctx) }
