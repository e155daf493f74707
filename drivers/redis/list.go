package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/lock/driver"
)

const (
	// scanCount is the number of keys per SCAN.
	scanCount = 1000
	// listBatch is the number of locks that one pipeline of List inspects.
	// The server runs a pipeline without interruption, so this bounds the
	// delay of other calls. L23
	listBatch = 32
	// maxSkipped bounds the keys of other programs that List names.
	maxSkipped = 100
)

// List implements [driver.Driver]. It has its own connection, so that no call
// of a lease or a waiter queues behind it. L23
func (e *engine) List(ctx context.Context, prefix string) ([]driver.State, error) {
	if e.closing.Load() {
		return nil, driver.ErrClosed
	}
	select {
	case e.side <- struct{}{}:
		defer func() { <-e.side }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	keys, err := scan(ctx, e.client, e.layout.match(prefix), func(name string) (string, bool) {
		key, ok := e.layout.key(name)
		return key, ok && strings.HasPrefix(key, prefix)
	})
	if err != nil {
		return nil, err
	}
	var out, skipped []driver.State
	for batch := range slices.Chunk(keys, listBatch) {
		states, err := e.inspectAll(ctx, batch)
		if err != nil {
			return nil, err
		}
		for _, s := range states {
			switch {
			case s.Skipped != "":
				skipped = append(skipped, s)
			case len(s.Holders)+len(s.Waiters)+len(s.Slots) > 0: // the keys of a plain lock outlive it for a while
				out = append(out, s)
			}
		}
	}
	out = append(out, nameSome(skipped)...)
	slices.SortFunc(out, func(a, b driver.State) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// nameSome returns the first of the skipped keys; the last one that it returns
// counts the others.
func nameSome(skipped []driver.State) []driver.State {
	if rest := len(skipped) - maxSkipped; rest > 0 {
		skipped = skipped[:maxSkipped]
		skipped[maxSkipped-1].Skipped += fmt.Sprintf("; %d more keys are skipped", rest)
	}
	return skipped
}

// inspectAll inspects keys in one pipeline.
func (e *engine) inspectAll(ctx context.Context, keys []string) ([]driver.State, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*goredis.Cmd, len(keys))
	for i, key := range keys {
		cmds[i] = wire.Command(e.scripts.inspect.on(e.layout.holder(key)).command(false))
		_ = pipe.Process(ctx, cmds[i])
	}
	_, _ = pipe.Exec(ctx)
	states := make([]driver.State, len(keys))
	for i, cmd := range cmds {
		var err error
		if cmd.Err() == nil {
			states[i], err = decodeState(keys[i], cmd.Val())
		} else if why, foreign := unreadable("lock", cmd.Err()); foreign {
			states[i] = driver.State{Key: keys[i], Skipped: why}
		} else {
			states[i], err = e.Inspect(ctx, keys[i]) // the caller retries the repeatable ones
		}
		if err != nil {
			return nil, fmt.Errorf("inspect %q: %w", keys[i], err)
		}
	}
	return states, nil
}

// unreadable returns the reason why the data of a key, a lock or a limit, cannot be
// read, if err is such an error.
func unreadable(what string, err error) (why string, ok bool) {
	if answer, isAnswer := errors.AsType[goredis.Error](err); isAnswer {
		switch text := answer.Error(); {
		case isWrongType(answer):
			return "a key beside the " + what + " has another type", true
		case strings.Contains(text, formatError):
			return formatText(text), true
		case strings.HasPrefix(text, "ERR user_script:"), strings.HasPrefix(text, wire.ScriptError) && strings.Contains(text, ": user_script:"): // before version 7
			return "the data of the " + what + " cannot be read: " + text, true
		}
	}
	return "", false
}

// isWrongType reports whether a script has found a key of another type.
func isWrongType(err error) bool {
	answer, ok := errors.AsType[goredis.Error](err)
	return ok && strings.Contains(answer.Error(), "WRONGTYPE")
}

// scanPage returns the keys at a cursor and the next cursor. Like the other
// calls it retries when an answer is late: a server that was busy for half a
// second is not unavailable.
func scanPage(ctx context.Context, node *goredis.Client, cursor uint64, match string) (keys []string, next uint64, err error) {
	for start, attempt := time.Now(), 0; ; attempt++ {
		keys, next, err = node.Scan(ctx, cursor, match, scanCount).Result()
		if err == nil || ctx.Err() != nil || judge(err) == final || time.Since(start) > driver.CallTimeout/2 {
			return keys, next, err
		}
		group.Sleep(ctx, backOff(attempt))
	}
}

// scan finds the keys of the names that match, by SCAN: its cost is spread over many
// short calls.
func scan(ctx context.Context, client goredis.UniversalClient, match string, keyOf func(name string) (string, bool)) ([]string, error) {
	s := scanner{match: match, keyOf: keyOf, found: map[string]struct{}{}}
	var err error
	switch c := client.(type) {
	case *goredis.ClusterClient:
		err = c.ForEachMaster(ctx, s.node)
	case *goredis.Client:
		err = s.node(ctx, c)
	default:
		err = errNotRedis
	}
	if err != nil {
		return nil, unavailable(fmt.Errorf("scan: %w", errors.Join(ctx.Err(), err)))
	}
	return slices.Sorted(maps.Keys(s.found)), nil
}

// scanner collects the keys at the masters of a server.
type scanner struct {
	match string
	keyOf func(name string) (string, bool)

	mu    sync.Mutex // guards found
	found map[string]struct{}
}

// node scans one master.
func (s *scanner) node(ctx context.Context, node *goredis.Client) error {
	for cursor := uint64(0); ; {
		page, next, err := scanPage(ctx, node, cursor, s.match)
		if err != nil {
			return err
		}
		s.add(page)
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (s *scanner) add(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if key, ok := s.keyOf(name); ok {
			s.found[key] = struct{}{}
		}
	}
}
