package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// limits are the limits of a node: calls of the hub, and at a socket a copy of
// the hub's table for the next hub.
type limits struct {
	node   *Node
	copied *windows.Table
	// epoch is the time of day, in microseconds since 1970, at which the clock of
	// the node read 0. The welcome of this process's first hub has it, and it
	// stays the same at later hubs: Settle needs the time that Take returned.
	epoch int64
}

func newLimits(n *Node) *limits {
	return &limits{node: n, copied: windows.New(protocol.NodeMicros)}
}

// Limits returns the limits of a namespace, which separates environments at one
// hub. The empty namespace is a separate namespace, too. Its scope is Node. The
// clock is the time since the start of the machine, so it never steps.
//
// The caller closes the driver before the node.
func (n *Node) Limits(namespace string) driver.Driver {
	prefix := ""
	if namespace != "" {
		prefix = namespace + endOfNamespace
	}
	return &limit{of: n.limits, prefix: prefix}
}

// date sets the epoch that grants are dated with; 0 comes from a hub of an
// earlier build. Its caller is the reader of a session that no call can use yet.
func (x *limits) date(epoch int64) {
	if x.epoch == 0 {
		x.epoch = cmp.Or(epoch, protocol.Epoch())
	}
}

// LimitsInUse reports whether a grant at the socket counts, a pause lasts, or a
// process waits for units. All of that ends with the last node.
func (n *Node) LimitsInUse() bool {
	used, err := n.limits.copied.List("")
	return err == nil && len(used) > 0
}

// handle handles a frame of the hub, on the reader's goroutine.
func (x *limits) handle(s *session, t protocol.Type, d *protocol.Decoder) error {
	switch t {
	case protocol.LimitNews:
		var news protocol.News
		if err := protocol.ReadJSON(d, &news); err != nil {
			return err
		}
		_ = news.Apply(x.copied) // it fails when the node ends, or the hub knows other bounds
	case protocol.LimitRecord:
		var r windows.Record
		if err := protocol.ReadJSON(d, &r); err != nil {
			return err
		}
		if err := protocol.CheckLimitRecord(&r); err != nil {
			return err
		}
		_, _ = x.copied.Restore(r) // likewise
	case protocol.LimitWanted:
		key := d.String()
		x.reportKey(s, key)
		_ = s.line.Send(protocol.Begin(protocol.LimitGiven).String(key)) // the reader handles the end of the line
	}
	return nil
}

// reportPart is the number of bytes of the report to a new hub that may wait to be
// written: the calls of the locks do not wait behind more.
const reportPart = 128 << 10

// connected announces the report of the copy to a new hub, before the locks mark
// the end of theirs, and returns the function that makes it.
func (x *limits) connected(s *session) (report func()) {
	if keys, _, _ := x.copied.Size(); x.node.presence == nil || keys == 0 {
		close(s.reported)
		return nil
	}
	f := protocol.Begin(protocol.LimitReporting)
	defer f.Free()
	_ = s.line.Queue(f, 0) // report handles the end of a line
	return func() { x.report(s) }
}

// report reports the copy to a new hub, in parts, while the calls of this process
// go on. The hub decides about a key with all that this process knows of it (W1):
// the calls about one key are preceded by its records, and the others wait for the
// end of the report.
func (x *limits) report(s *session) {
	for r := range x.copied.Records() {
		f, err := protocol.AddJSON(protocol.Begin(protocol.LimitRecord), r)
		if err != nil {
			continue // it has numbers and texts, and came from JSON
		}
		err = s.line.Queue(f, reportPart)
		for errors.Is(err, protocol.ErrFull) {
			s.line.Flush()
			if err = s.line.Room(x.node.ctx, reportPart); err == nil {
				err = s.line.Queue(f, reportPart)
			}
		}
		f.Free()
		if err != nil {
			return // the line has ended
		}
	}
	if s.line.Send(protocol.Begin(protocol.LimitReported)) == nil {
		s.ahead.Lock()
		defer s.ahead.Unlock()
		close(s.reported)
		s.ahead.keys = nil
	}
}

// reportKey reports one key to a hub ahead of the rest of the report, unless that was
// done: later grants of the key come from this hub.
func (x *limits) reportKey(s *session, key string) {
	s.ahead.Lock() // until the records are queued: the calls of others follow them, too
	defer s.ahead.Unlock()
	if _, done := s.ahead.keys[key]; done || protocol.IsClosed(s.reported) {
		return
	}
	if s.ahead.keys == nil {
		s.ahead.keys = make(map[string]struct{})
	}
	s.ahead.keys[key] = struct{}{}
	for _, r := range x.copied.RecordsOf(key) {
		f, err := protocol.AddJSON(protocol.Begin(protocol.LimitRecord), r)
		if err != nil {
			continue // as in report
		}
		_ = s.line.Queue(f, 0) // the frame after it reports the end of the line
		f.Free()
	}
}

// call calls the hub until ctx ends. If the hub ends before its answer, the
// call is repeated at the next hub, which repeated reports; with once it fails,
// because its effect must not be doubled. key is the only key that the call needs,
// or empty.
func (x *limits) call(ctx context.Context, name, key string, in, out any, once bool) (repeated bool, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return false, fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	for ; ; repeated = true {
		s, err := x.hub(ctx, key)
		if err != nil {
			return repeated, err
		}
		answer, err := s.calls.Call(ctx, name, body)
		switch {
		case err == nil && out == nil:
			return repeated, nil
		case err == nil:
			return repeated, json.Unmarshal(answer, out)
		case ctx.Err() != nil:
			return repeated, ctx.Err()
		}
		if refused, ok := errors.AsType[*CallError](err); ok {
			return repeated, fmt.Errorf("%w: %s: %s", driver.ErrUnavailable, s.hub, refused.Text)
		}
		if once {
			return repeated, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		group.Sleep(ctx, time.Millisecond) // until the node has noticed; ctx is checked above
	}
}

// hub returns a hub that knows the earlier one's grants that this process knows: of
// key, or of all keys if key is empty.
func (x *limits) hub(ctx context.Context, key string) (*session, error) {
	for {
		s, err := x.node.ready(ctx)
		switch {
		case errors.Is(err, errNodeClosed):
			return nil, driver.ErrClosed
		case err != nil && ctx.Err() == nil:
			return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		case err != nil:
			return nil, err
		}
		if awaitEither(ctx, s.opened, s.line.Ended()) {
			switch {
			case protocol.IsClosed(s.reported):
				return s, nil
			case key != "":
				x.reportKey(s, key)
				return s, nil
			case awaitEither(ctx, s.reported, s.line.Ended()):
				return s, nil
			}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s waits for the limits of the processes: %w", s.hub, ctx.Err())
		}
		group.Sleep(ctx, time.Millisecond) // until the node has noticed an ended line
	}
}

// awaitEither waits for done, and reports whether it came before ended and the end
// of ctx.
func awaitEither(ctx context.Context, done, ended <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ended:
	case <-ctx.Done():
	}
	return false
}

// limit is the driver of one namespace.
type limit struct {
	of     *limits
	prefix string
	closed atomic.Bool
}

var _ driver.Driver = (*limit)(nil)

func (x *limit) call(ctx context.Context, name, key string, in, out any, once bool) error {
	if x.closed.Load() {
		return driver.ErrClosed
	}
	_, err := x.of.call(ctx, name, key, in, out, once)
	return err
}

// Info implements [driver.Driver].
func (x *limit) Info() driver.Info {
	return driver.Info{Name: "cluster", Scope: driver.Node, Format: strconv.FormatUint(protocol.Known.Newest, 10)}
}

// Take implements [driver.Driver]. A hub that has ended may have granted a request
// without a ticket. Its repetition may then be refused because of these units: the
// outcome is unknown. W9
func (x *limit) Take(ctx context.Context, r driver.Request) (a driver.Answer, err error) {
	if x.closed.Load() {
		return a, driver.ErrClosed
	}
	r.Key = x.prefix + r.Key
	repeated, err := x.of.call(ctx, protocol.LimitTake, r.Key, r, &a, false)
	if err == nil && repeated && r.Ticket == "" && r.Cost > 0 && !a.Granted {
		return driver.Answer{}, fmt.Errorf("%w: take: the answer of the earlier hub was lost", driver.ErrUnavailable)
	}
	if a.Granted {
		a.At = a.At.Add(time.Duration(x.of.epoch) * time.Microsecond)
	}
	return a, err
}

// Withdraw implements [driver.Driver].
func (x *limit) Withdraw(ctx context.Context, r driver.Request) error {
	r.Key = x.prefix + r.Key
	return x.call(ctx, protocol.LimitWithdraw, r.Key, r, nil, false)
}

// Settle implements [driver.Driver].
func (x *limit) Settle(ctx context.Context, s driver.Settlement) error {
	s.Key, s.At = x.prefix+s.Key, s.At.Add(-time.Duration(x.of.epoch)*time.Microsecond)
	return x.call(ctx, protocol.LimitSettle, s.Key, s, nil, true)
}

// Pause implements [driver.Driver].
func (x *limit) Pause(ctx context.Context, key string, p driver.Pause) error {
	return x.call(ctx, protocol.LimitPause, "", protocol.LimitOf{Key: x.prefix + key, Pause: p}, nil, false)
}

// Reset implements [driver.Driver].
func (x *limit) Reset(ctx context.Context, key string) error {
	return x.call(ctx, protocol.LimitReset, "", protocol.LimitOf{Key: x.prefix + key}, nil, false)
}

// Inspect implements [driver.Driver].
func (x *limit) Inspect(ctx context.Context, key string, rates []driver.Rate) (s driver.State, err error) {
	err = x.call(ctx, protocol.LimitInspect, x.prefix+key, protocol.LimitOf{Key: x.prefix + key, Rates: rates}, &s, false)
	s.Key = key
	return s, err
}

// List implements [driver.Driver].
func (x *limit) List(ctx context.Context, prefix string) (states []driver.State, err error) {
	for of := (protocol.LimitOf{Key: x.prefix + prefix, Part: true}); ; of.After = states[len(states)-1].Key {
		var part []driver.State
		if err := x.call(ctx, protocol.LimitList, "", of, &part, false); err != nil {
			return nil, err
		}
		if len(part) == 0 || part[0].Key <= of.After { // a hub of an earlier build always answers with the whole list
			break
		}
		states = append(states, part...)
	}
	if x.prefix == "" {
		return slices.DeleteFunc(states, func(s driver.State) bool { return strings.Contains(s.Key, endOfNamespace) }), nil
	}
	for i := range states {
		states[i].Key = strings.TrimPrefix(states[i].Key, x.prefix)
	}
	return states, nil
}

// Close implements [driver.Driver].
func (x *limit) Close(context.Context) error {
	x.closed.Store(true)
	return nil
}
