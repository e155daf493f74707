package cluster

import (
	"context"
	"slices"
	"strings"

	"github.com/megaframework/mega/lock/driver"
)

// endOfNamespace separates a namespace from a key at the hub. It is not legal
// in a key, so that no key of one namespace is a key of another or of none.
const endOfNamespace = "\x00"

// Locks returns the locks of a namespace, which separates environments at one
// hub (L24). The empty namespace is a separate namespace, too.
func (n *Node) Locks(namespace string) driver.Driver {
	if namespace == "" {
		return unnamed{n.lock}
	}
	return &namespaced{n.lock, namespace + endOfNamespace}
}

// unnamed is a Lock whose List leaves out the keys of namespaces.
type unnamed struct{ *Lock }

// List implements [driver.Driver].
func (x unnamed) List(ctx context.Context, prefix string) ([]driver.State, error) {
	states, err := x.Lock.List(ctx, prefix)
	return slices.DeleteFunc(states, func(s driver.State) bool { return strings.Contains(s.Key, endOfNamespace) }), err
}

// namespaced is a Lock whose keys have a prefix at the hub.
type namespaced struct {
	*Lock
	prefix string
}

// Acquire implements [driver.Driver].
func (x *namespaced) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	r.Key = x.prefix + r.Key
	return x.own(x.Lock.Acquire(ctx, r))
}

// Ask implements [driver.Asker].
func (x *namespaced) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	r.Key = x.prefix + r.Key
	g, wait, err := x.Lock.Ask(ctx, r)
	g, err = x.own(g, err)
	if wait == nil {
		return g, nil, err
	}
	return g, func(ctx context.Context) (driver.Grant, error) { return x.own(wait(ctx)) }, err
}

// Renew implements [driver.Driver].
func (x *namespaced) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	theirs := make([]driver.Grant, len(grants))
	for i, g := range grants {
		theirs[i] = x.theirs(g)
	}
	return x.Lock.Renew(ctx, theirs)
}

// Release implements [driver.Driver].
func (x *namespaced) Release(ctx context.Context, g driver.Grant) error {
	return x.Lock.Release(ctx, x.theirs(g))
}

// ForceRelease implements [driver.Driver].
func (x *namespaced) ForceRelease(ctx context.Context, key string, f driver.Force) (int, error) {
	return x.Lock.ForceRelease(ctx, x.prefix+key, f)
}

// Inspect implements [driver.Driver].
func (x *namespaced) Inspect(ctx context.Context, key string) (driver.State, error) {
	s, err := x.Lock.Inspect(ctx, x.prefix+key)
	s.Key = key
	return s, err
}

// List implements [driver.Driver].
func (x *namespaced) List(ctx context.Context, prefix string) ([]driver.State, error) {
	states, err := x.Lock.List(ctx, x.prefix+prefix)
	for i := range states {
		states[i].Key = strings.TrimPrefix(states[i].Key, x.prefix)
	}
	return states, err
}

func (x *namespaced) theirs(g driver.Grant) driver.Grant {
	g.Key = x.prefix + g.Key
	return g
}

// own returns a grant with the caller's key.
func (x *namespaced) own(g driver.Grant, err error) (driver.Grant, error) {
	g.Key = strings.TrimPrefix(g.Key, x.prefix)
	return g, err // the front puts the caller's key into the error
}
