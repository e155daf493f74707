package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/limit/driver"
)

// Inspect implements [driver.Driver]. Without rates the first call returns which
// logs exist, and the second one, which names them, the state.
func (l *limits) Inspect(ctx context.Context, key string, rates []driver.Rate) (driver.State, error) {
	s, pers, err := l.inspect(ctx, key, rates)
	if err != nil || len(pers) == 0 {
		return s, err
	}
	s, _, err = l.inspect(ctx, key, pers)
	return used(s), err
}

func (l *limits) inspect(ctx context.Context, key string, rates []driver.Rate) (driver.State, []driver.Rate, error) {
	a, _, err := l.execute(ctx, l.onLimit(l.scripts.inspect, key, rates), 5)
	if err != nil {
		return driver.State{}, nil, err
	}
	s, pers := decodeLimit(key, rates, a)
	return s, pers, nil
}

// decodeLimit reads the answer of inspect, and the rates that a second call asks
// for.
func decodeLimit(key string, rates []driver.Rate, a answer) (s driver.State, pers []driver.Rate) {
	s.Key = key
	found := a.sub(0)
	for i, r := range rates {
		r.N = int(found.num(3 * i))
		used := int(found.num(3*i + 1))
		s.Rates = append(s.Rates, driver.RateState{
			Rate: r, Used: used, Remaining: max(r.N-used, 0), NextFree: limitTime(found.num(3*i + 2)),
		})
	}
	waiting := a.sub(1)
	for i := 0; i+1 < len(waiting); i += 2 {
		w := driver.Waiter{}
		_ = json.Unmarshal([]byte(waiting.text(i+1)), &w.Holder) // for display
		w.Cost, _ = strconv.Atoi(waiting.text(i))
		s.Waiters = append(s.Waiters, w)
	}
	s.Paused = decodePause(a.num(2), a.text(3))
	for i := range a.sub(4) {
		if us, err := strconv.ParseInt(a.sub(4).text(i), 10, 64); err == nil {
			pers = append(pers, driver.Rate{Per: time.Duration(us) * time.Microsecond})
		}
	}
	slices.SortFunc(pers, func(a, b driver.Rate) int { return cmp.Compare(a.Per, b.Per) })
	return s, pers
}

// used leaves out the rates of which nothing is used.
func used(s driver.State) driver.State {
	s.Rates = slices.DeleteFunc(s.Rates, func(r driver.RateState) bool { return r.Used == 0 })
	return s
}

// List implements [driver.Driver], with a connection of its own. L23
func (l *limits) List(ctx context.Context, prefix string) ([]driver.State, error) {
	if l.closing.Load() {
		return nil, driver.ErrClosed
	}
	select {
	case l.side <- struct{}{}:
		defer func() { <-l.side }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	keys, err := scan(ctx, l.connection.client, l.template.limitMatch(prefix), func(name string) (string, bool) {
		key, ok := l.template.limitKey(name)
		return key, ok && strings.HasPrefix(key, prefix)
	})
	if err != nil {
		return nil, limitError(err)
	}
	var all []driver.State
	for batch := range slices.Chunk(keys, listBatch) {
		states, err := l.inspectAll(ctx, batch)
		if err != nil {
			return nil, err
		}
		all = append(all, states...)
	}
	return all, nil
}

// inspectAll returns the states of those keys that are in use. It has one
// pipeline for their rates, and one for their states.
func (l *limits) inspectAll(ctx context.Context, keys []string) (states []driver.State, err error) {
	_, wanted, err := l.inspectEach(ctx, keys, make([][]driver.Rate, len(keys)))
	if err != nil {
		return nil, err
	}
	again, _, err := l.inspectEach(ctx, keys, wanted)
	for _, s := range again {
		if s = used(s); s.Skipped != "" || len(s.Rates)+len(s.Waiters) > 0 || s.Paused != nil {
			states = append(states, s)
		}
	}
	return states, err
}

// inspectEach inspects keys in one pipeline.
func (l *limits) inspectEach(ctx context.Context, keys []string, rates [][]driver.Rate) (states []driver.State, pers [][]driver.Rate, err error) {
	pipe := l.connection.client.Pipeline()
	calls := make([]*goredis.Cmd, len(keys))
	for i, key := range keys {
		calls[i] = wire.Command(l.onLimit(l.scripts.inspect, key, rates[i]).command(false))
		_ = pipe.Process(ctx, calls[i])
	}
	_, _ = pipe.Exec(ctx)
	states, pers = make([]driver.State, len(keys)), make([][]driver.Rate, len(keys))
	for i, c := range calls {
		if a, err := check(c.Val(), 5); c.Err() == nil && err == nil {
			states[i], pers[i] = decodeLimit(keys[i], rates[i], a)
		} else if why, foreign := unreadable("limit", c.Err()); foreign {
			states[i] = driver.State{Key: keys[i], Skipped: why}
		} else if states[i], pers[i], err = l.inspect(ctx, keys[i], rates[i]); err != nil { // it retries
			return nil, nil, fmt.Errorf("inspect %q: %w", keys[i], err)
		}
	}
	return states, pers, nil
}
