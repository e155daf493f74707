package lock

import (
	"context"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/lock/driver"
)

// cleaner is the one background job of a Locker for releases that could not be
// done at once: failed releases, requests whose outcome is unknown, and leases
// lost by time that the backend may still keep. During an outage it uses at
// most maxCleanUps entries and cleanersAtOnce goroutines, for any number of
// callers (L5, L10). The job runs while there are entries.
type cleaner struct {
	locker *Locker

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
	rests instant // until when the key stays taken, if grant.Rest is set
	until instant // when the grant expires at the backend
	due   instant // when the next attempt is due
	pause time.Duration
}

func (c *cleaner) init(l *Locker) { c.locker, c.wake = l, make(chan struct{}, 1) }

// add releases g in the background, with retries until it expires at the
// backend, at until. failed is the error of the caller's attempt. If it is nil,
// the first attempt is made at once, even after until.
func (c *cleaner) add(g driver.Grant, until instant, failed error) {
	now := c.locker.clock.now()
	e := cleanUp{grant: g, rests: now.add(g.Rest), until: until, due: now, pause: cleanUpPause}
	if failed == nil {
		e.until = max(until, now.add(driver.CallTimeout))
	} else if !c.postpone(&e, failed, now) {
		return
	}
	c.push(e)
}

// push adds an entry and starts or wakes the job.
func (c *cleaner) push(e cleanUp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= maxCleanUps {
		c.locker.counters.unreleased.Add(1) // L5: left to its TTL
		return
	}
	c.entries.push(e)
	if !c.running {
		c.ended = make(chan struct{})
		c.running = c.locker.group.Go(c.run)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// postpone sets the time of the next attempt for e after a failed one. It
// returns false if the grant has expired at the backend.
func (c *cleaner) postpone(e *cleanUp, failed error, now instant) bool {
	left := e.until.sub(now)
	if left <= 0 {
		return false
	}
	c.locker.observe(ReleaseFailed{Key: e.grant.Key, Err: failed, Left: left})
	e.due = now.add(min(jitter(e.pause), left))
	e.pause = min(2*e.pause, cleanUpPauseMax)
	return true
}

// flush waits until nothing is left to release, at most for bound.
func (c *cleaner) flush(bound time.Duration) {
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
func (c *cleaner) run(ctx context.Context) {
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
			group.Sleep(ctx, jitter(pause))
			pause = min(2*pause, cleanUpPauseMax)
		}
	}
}

// take removes and returns due entries. If none is due, wait is the time until
// the next one is. more is false if there are no entries at all; the job then
// ends.
func (c *cleaner) take() (batch []cleanUp, wait time.Duration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.locker.clock.now()
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
	return nil, c.entries[0].due.sub(now), true
}

// release tries all entries of batch once, concurrently, and reports whether
// any release succeeded.
func (c *cleaner) release(ctx context.Context, batch []cleanUp) (any bool) {
	now := c.locker.clock.now()
	for i := range batch {
		if g := &batch[i].grant; g.Rest > 0 {
			g.Rest = max(batch[i].rests.sub(now), time.Millisecond)
		}
	}
	errs := make([]error, len(batch))
	var work sync.WaitGroup
	for i := 1; i < len(batch); i++ {
		work.Go(func() { errs[i] = c.locker.releaseOnce(ctx, batch[i].grant) })
	}
	errs[0] = c.locker.releaseOnce(ctx, batch[0].grant)
	work.Wait()
	now = c.locker.clock.now()
	for i, err := range errs {
		switch {
		case err == nil:
			any = true
		case ctx.Err() != nil:
		default:
			c.locker.health.failed(err)
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
