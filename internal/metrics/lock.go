package metrics

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/megaframework/mega/lock"
)

// lockBuckets reach from a lock in memory to a wait that a user notices.
var lockBuckets = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60}

// The series of locks.
var (
	lockAcquired  = byClass("mega_lock_acquired_total", "counter", "Leases granted.")
	lockContended = byClass("mega_lock_contended_total", "counter", "Acquire calls that found the lock busy.")
	lockRefused   = byClass("mega_lock_not_acquired_total", "counter", "Acquire calls that ended without a lease, by reason: busy, cancelled, unavailable, closed, unsupported, deadlock or other.", "reason")
	lockLost      = byClass("mega_lock_lost_total", "counter", "Leases that ended before they were released, by cause: expired, forced, unreachable, shutdown or unknown.", "cause")
	lockForced    = byClass("mega_lock_forced_total", "counter", "Leases that this process released by force, its own and those of other processes.")
	lockForgotten = byClass("mega_lock_forgotten_total", "counter", "Leases that the program did not release and mega took back.")
	renewFailed   = byClass("mega_lock_renew_failures_total", "counter", "Failed renewals that were retried.")
	releaseFailed = byClass("mega_lock_release_failures_total", "counter", "Failed releases that were retried.")
	poolResized   = byClass("mega_lock_pool_resized_total", "counter", "Reported differences about the size of a pool.")
	slotWithdrawn = byClass("mega_lock_slots_withdrawn_total", "counter", "Slots of pools that this process has withdrawn.")
	lockStale     = byClass("mega_lock_stale_total", "counter", "Writes that a guard refused because a later holder had written.")
	lockRuns      = byClass("mega_lock_runs_total", "counter", "Runs of Once and Every in this process, by outcome: done or failed.", "outcome")
	lockRetries   = byClass("mega_lock_retries_total", "counter", "Failed attempts of Lead and Every to use their key, and failed terms of leaders.")
	lockWait      = byClass("mega_lock_wait_seconds", "histogram", "Wait of the granted acquire calls.")
	lockHeld      = byClass("mega_lock_held_seconds", "histogram", "Hold time of the released and lost leases.")

	lockActive    = Series{"mega_lock_active", "gauge", nil, "Leases held by this process."}
	lockWaiting   = Series{"mega_lock_waiting", "gauge", nil, "Waiting acquire calls of this process."}
	lockAvailable = Series{"mega_lock_available", "gauge", nil, "1 if the backend is available, else 0."}
	poolSlots     = byClass("mega_lock_slots", "gauge", "Slots of the pools that this process has used, by state: held, free, dirty, resting or withdrawn. Each process that uses a pool reports all of its slots.", "state")
	lockOutages   = Series{"mega_lock_outages_total", "counter", nil, "Outages of the backend."}
	lockScope     = Series{"mega_lock_scope", "gauge", []string{"driver"}, "Scope of exclusion: 0 this process, 1 this node, 2 the fleet."}
)

func byClass(name, kind, help string, more ...string) Series {
	return Series{name, kind, append([]string{"key_class"}, more...), help}
}

func lockCatalogue() []Series {
	return []Series{
		lockAcquired, lockContended, lockRefused, lockLost, lockForced, lockForgotten,
		renewFailed, releaseFailed, poolResized, slotWithdrawn, lockStale, lockRuns, lockRetries, lockWait, lockHeld, lockActive, lockWaiting, lockAvailable, poolSlots, lockOutages, lockScope,
	}
}

// locks counts the events of a Locker.
type locks struct {
	classes                                                                  *classes[class]
	refused, lost, forced, forgotten, notRenewed, unreleased, resized, stale *prometheus.CounterVec
	runs, retries, withdrawn                                                 *prometheus.CounterVec
	outages                                                                  prometheus.Counter
}

// class holds the metrics that each lease updates, looked up once for all keys
// of the class.
type class struct {
	name                string
	acquired, contended prometheus.Counter
	wait, held          prometheus.Observer
}

func newLocks(r *prometheus.Registry) locks {
	acquired, contended := counter(r, lockAcquired), counter(r, lockContended)
	wait, held := histogram(r, lockWait, lockBuckets), histogram(r, lockHeld, lockBuckets)
	return locks{
		classes: newClasses(func(name string) *class {
			return &class{name, acquired.WithLabelValues(name), contended.WithLabelValues(name), wait.WithLabelValues(name), held.WithLabelValues(name)}
		}),
		refused: counter(r, lockRefused), lost: counter(r, lockLost), forced: counter(r, lockForced), forgotten: counter(r, lockForgotten),
		notRenewed: counter(r, renewFailed), unreleased: counter(r, releaseFailed), resized: counter(r, poolResized), stale: counter(r, lockStale),
		runs: counter(r, lockRuns), retries: counter(r, lockRetries), withdrawn: counter(r, slotWithdrawn),
		outages: counter(r, lockOutages).WithLabelValues(),
	}
}

var _ lock.Observer = (*Metrics)(nil)

// Observe counts an event of a Locker.
func (m *Metrics) Observe(e lock.Event) {
	l := &m.locks
	switch e := e.(type) {
	case lock.Acquired:
		c := l.classes.of(e.Key)
		c.acquired.Inc()
		c.wait.Observe(e.Waited.Seconds())
		if e.Contended {
			c.contended.Inc()
		}
	case lock.Released:
		l.classes.of(e.Key).held.Observe(e.Held.Seconds())
	case lock.NotAcquired:
		l.refuse(l.classes.of(e.Key), e.Err)
	case lock.Lost:
		c := l.classes.of(e.Key)
		c.held.Observe(e.Held.Seconds())
		l.lost.WithLabelValues(c.name, cause(e.Err)).Inc()
	case lock.ForcedRelease:
		l.forced.WithLabelValues(l.classes.of(e.Key).name).Add(float64(e.Released))
	case lock.Forgotten:
		l.forgotten.WithLabelValues(l.classes.of(e.Key).name).Inc()
	case lock.RenewFailed:
		l.notRenewed.WithLabelValues(l.classes.of(e.Key).name).Inc()
	case lock.Unavailable:
		l.outages.Inc()
	case lock.ReleaseFailed:
		l.unreleased.WithLabelValues(l.classes.of(e.Key).name).Inc()
	case lock.Stale:
		l.stale.WithLabelValues(l.classes.of(e.Key).name).Inc()
	case lock.Ran:
		l.runs.WithLabelValues(l.classes.of(e.Key).name, outcome(e.Err)).Inc()
	case lock.Retrying:
		l.retries.WithLabelValues(l.classes.of(e.Key).name).Inc()
	case lock.PoolResized:
		l.resized.WithLabelValues(l.classes.of(e.Key).name).Inc()
	case lock.Withdrawn:
		l.withdrawn.WithLabelValues(l.classes.of(e.Key).name).Inc()
	}
}

func outcome(err error) string {
	if err != nil {
		return "failed"
	}
	return "done"
}

func (l *locks) refuse(c *class, err error) {
	if errors.Is(err, lock.ErrNotAcquired) {
		c.contended.Inc()
	}
	l.refused.WithLabelValues(c.name, reason(err)).Inc()
}

// reason returns one word for the reason why a call ended without a lease. Busy
// and failed calls always have different words.
func reason(err error) string {
	switch {
	case errors.Is(err, lock.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, lock.ErrClosed):
		return "closed"
	case errors.Is(err, lock.ErrUnsupported):
		return "unsupported"
	case errors.Is(err, lock.ErrDeadlock):
		return "deadlock"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "cancelled"
	case errors.Is(err, lock.ErrNotAcquired):
		return "busy"
	}
	return "other"
}

// cause returns the cause of a loss. A hub of another build may have further ones.
func cause(err error) string {
	if lost, ok := errors.AsType[*lock.LostError](err); ok {
		switch lost.Cause {
		case lock.Expired, lock.Forced, lock.Unreachable, lock.Shutdown:
			return string(lost.Cause)
		}
	}
	return "unknown"
}

// Locker adds the leases and waiters of l, which each scrape reads, and its
// scope. It must be called once.
func (m *Metrics) Locker(l *lock.Locker) {
	info := l.Info()
	m.registry.MustRegister(
		gaugeOf(lockActive, func() float64 { return float64(l.Stats().Active) }),
		gaugeOf(lockWaiting, func() float64 { return float64(l.Stats().Waiting) }),
		gaugeOf(lockAvailable, func() float64 {
			if l.Unavailable() != nil {
				return 0
			}
			return 1
		}),
		poolCollector{l, poolSlots.desc()},
	)
	gauge(m.registry, lockScope).WithLabelValues(info.Name).Set(float64(info.Scope))
}

// poolCollector reads the states of slots from the backend, for each scrape.
type poolCollector struct {
	locker *lock.Locker
	desc   *prometheus.Desc
}

// Describe is for the registry.
func (c poolCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect is for the registry. While the backend does not answer, the pools have
// no series.
func (c poolCollector) Collect(out chan<- prometheus.Metric) {
	if c.locker.Unavailable() != nil {
		return
	}
	pools, err := c.locker.Pools(context.Background())
	if err != nil {
		return
	}
	for name, t := range tallies(pools) {
		for state, n := range map[lock.SlotStatus]int{
			lock.SlotHeld: t.Held, lock.SlotFree: t.Free, lock.SlotDirty: t.Dirty, lock.SlotResting: t.Resting, lock.SlotWithdrawn: t.Withdrawn,
		} {
			out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), name, string(state))
		}
	}
}

// tallies returns the slots by state of each class of pools.
func tallies(pools []lock.State) map[string]lock.Tally {
	all := map[string]lock.Tally{}
	for _, s := range pools {
		name := className(classOf(s.Key))
		if _, known := all[name]; !known && len(all) >= maxClasses {
			name = otherClass
		}
		sum, t := all[name], s.Tally()
		sum.Held += t.Held
		sum.Free += t.Free
		sum.Dirty += t.Dirty
		sum.Resting += t.Resting
		sum.Withdrawn += t.Withdrawn
		all[name] = sum
	}
	return all
}

// gaugeOf returns a gauge that each scrape reads. values are the values of the
// labels of s.
func gaugeOf(s Series, read func() float64, values ...string) prometheus.Collector {
	labels := prometheus.Labels{}
	for i, name := range s.Labels {
		labels[name] = values[i]
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: s.Name, Help: s.Help, ConstLabels: labels}, read)
}
