// Package cleaner releases grants in the background that could not be released at
// once: failed releases, requests whose outcome is unknown, and leases lost by time
// that the backend may still keep (L5, L10).
package cleaner

import (
	"context"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/lock/driver"
)

// Owner is the owner of a Cleaner.
type Owner interface {
	// Now returns the time on the clock of the deadlines of grants.
	Now() time.Duration
	// Go runs fn in the background. It returns false after the owner's end.
	Go(fn func(ctx context.Context)) bool
	// Release makes one attempt to release g. Nil means that the backend does
	// not have g any more.
	Release(ctx context.Context, g driver.Grant) error
	// Failed receives the error of an attempt of the background job.
	Failed(err error)
	// Retrying reports that the release of g has failed and is retried for the time
	// left.
	Retrying(g *driver.Grant, err error, left time.Duration)
	// Dropped counts a grant that is left to its TTL.
	Dropped()
}

// Cleaner is the one background job of an owner. During an outage it uses at most
// maxCleanUps entries and cleanersAtOnce goroutines, for any number of callers.
// The job runs while there are entries. Its times are on the clock of the owner.
type Cleaner struct {
	owner Owner

	mu      sync.Mutex // guards the fields below
	entries cleanUps
	running bool
	ended   chan struct{} // closed when the running job ends
	wake    chan struct{} // has room for one: an entry is due earlier than the job sleeps
}

const (
	// maxCleanUps is the maximum number of releases that wait. Further grants
	// are left to their TTL.
	maxCleanUps = 65_536
	// cleanersAtOnce is the number of releases that are sent at once.
	cleanersAtOnce = 32
	// The pauses between the attempts for one entry, and between the batches of
	// the job while all attempts fail.
	cleanUpPause    = 50 * time.Millisecond
	cleanUpPauseMax = time.Second
)

// cleanUp is one release that is retried until it succeeds or the grant has
// expired at the backend.
type cleanUp struct {
	grant driver.Grant
	rests time.Duration // until when the key stays taken, if grant.Rest is set
	until time.Duration // when the grant expires at the backend
	due   time.Duration // when the next attempt is due
	pause time.Duration
}

// Init makes c ready.
func (c *Cleaner) Init(o Owner) { c.owner, c.wake = o, make(chan struct{}, 1) }

// Add releases g in the background, with retries until it expires at the
// backend, at until. failed is the error of the caller's attempt. If it is nil,
// the first attempt is made at once, even after until.
func (c *Cleaner) Add(g driver.Grant, until time.Duration, failed error) {
	now := c.owner.Now()
	e := cleanUp{grant: g, rests: now + g.Rest, until: until, due: now, pause: cleanUpPause}
	if failed == nil {
		e.until = max(until, now+driver.CallTimeout)
	} else if !c.postpone(&e, failed, now) {
		return
	}
	c.push(e)
}

// push adds an entry and starts or wakes the job.
func (c *Cleaner) push(e cleanUp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= maxCleanUps {
		c.owner.Dropped() // L5: left to its TTL
		return
	}
	c.entries.push(e)
	if !c.running {
		c.ended = make(chan struct{})
		c.running = c.owner.Go(c.run)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// postpone sets the time of the next attempt for e after a failed one. It
// returns false if the grant has expired at the backend.
func (c *Cleaner) postpone(e *cleanUp, failed error, now time.Duration) bool {
	left := e.until - now
	if left <= 0 {
		return false
	}
	c.owner.Retrying(&e.grant, failed, left)
	e.due = now + min(group.Jitter(e.pause), left)
	e.pause = min(2*e.pause, cleanUpPauseMax)
	return true
}

// Flush waits until nothing is left to release, at most for bound.
func (c *Cleaner) Flush(bound time.Duration) {
	c.mu.Lock()
	running, ended := c.running, c.ended
	c.mu.Unlock()
	if !running {
		return
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// run releases due entries until none is left.
func (c *Cleaner) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := cleanUpPause
	for ctx.Err() == nil {
		batch, wait, more := c.take()
		switch {
		case !more:
			return
		case len(batch) == 0:
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-c.wake:
			case <-ctx.Done():
			}
		case c.release(ctx, batch):
			pause = cleanUpPause
		default:
			// No release succeeded, so the backend is down. The pause keeps the
			// job from spinning over thousands of entries.
			group.Sleep(ctx, group.Jitter(pause))
			pause = min(2*pause, cleanUpPauseMax)
		}
	}
}

// take removes and returns due entries. If none is due, wait is the time until
// the next one is. more is false if there are no entries at all; the job then
// ends.
func (c *Cleaner) take() (batch []cleanUp, wait time.Duration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.owner.Now()
	for len(batch) < cleanersAtOnce && len(c.entries) > 0 && c.entries[0].due <= now {
		if e := c.entries.pop(); e.until > now {
			batch = append(batch, e)
		}
	}
	if len(batch) > 0 {
		return batch, 0, true
	}
	if len(c.entries) == 0 {
		c.running, c.entries = false, nil
		close(c.ended)
		return nil, 0, false
	}
	return nil, c.entries[0].due - now, true
}

// release tries all entries of batch once, concurrently, and reports whether
// any release succeeded.
func (c *Cleaner) release(ctx context.Context, batch []cleanUp) (any bool) {
	now := c.owner.Now()
	for i := range batch {
		if g := &batch[i].grant; g.Rest > 0 {
			g.Rest = max(batch[i].rests-now, time.Millisecond)
		}
	}
	errs := make([]error, len(batch))
	var work sync.WaitGroup
	for i := 1; i < len(batch); i++ {
		work.Go(func() { errs[i] = c.owner.Release(ctx, batch[i].grant) })
	}
	errs[0] = c.owner.Release(ctx, batch[0].grant)
	work.Wait()
	now = c.owner.Now()
	for i, err := range errs {
		switch {
		case err == nil:
			any = true
		case ctx.Err() != nil:
		default:
			c.owner.Failed(err)
			if c.postpone(&batch[i], err, now) {
				c.push(batch[i])
			}
		}
	}
	return any
}

// cleanUps is a binary heap, ordered by due.
type cleanUps []cleanUp

func (h *cleanUps) push(e cleanUp) {
	*h = append(*h, e)
	for i := len(*h) - 1; i > 0; {
		parent := (i - 1) / 2
		if (*h)[parent].due <= (*h)[i].due {
			return
		}
		(*h)[parent], (*h)[i] = (*h)[i], (*h)[parent]
		i = parent
	}
}

func (h *cleanUps) pop() cleanUp {
	s := *h
	first, last := s[0], len(s)-1
	s[0], s[last] = s[last], cleanUp{}
	s = s[:last]
	*h = s
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if right := child + 1; right < last && s[right].due < s[child].due {
			child = right
		}
		if s[i].due <= s[child].due {
			return first
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
}
