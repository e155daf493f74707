package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/megaframework/mega/limit"
)

// The series of limits.
var (
	limitAllowed  = byClass("mega_limit_allowed_total", "counter", "Calls that a limit has allowed.")
	limitRefused  = byClass("mega_limit_refused_total", "counter", "Calls that a limit has not allowed, by reason: limited, paused, full, unavailable or other.", "reason")
	limitDegraded = byClass("mega_limit_degraded_total", "counter", "Calls that were allowed without the backend, by the Outage of their limit.")
	limitPaused   = byClass("mega_limit_paused_total", "counter", "Pauses that this process has begun.")
	limitWait     = byClass("mega_limit_wait_seconds", "histogram", "Wait of the calls that a limit has allowed.")

	limitWaiting   = Series{"mega_limit_waiting", "gauge", nil, "Calls of this process that wait for a limit."}
	limitAvailable = Series{"mega_limit_available", "gauge", nil, "1 if the backend of limits is available, else 0."}
	limitOutages   = Series{"mega_limit_outages_total", "counter", nil, "Outages of the backend of limits."}
	limitScope     = Series{"mega_limit_scope", "gauge", []string{"driver"}, "Scope of limits: 0 this process, 1 this node, 2 the fleet."}
)

func limitCatalogue() []Series {
	return []Series{limitAllowed, limitRefused, limitDegraded, limitPaused, limitWait, limitWaiting, limitAvailable, limitOutages, limitScope}
}

// limits counts the events of a Limiter.
type limits struct {
	classes         *classes[limitClass]
	refused, paused *prometheus.CounterVec
	outages         prometheus.Counter
}

// limitClass holds the metrics that each call updates, looked up once for all
// keys of the class.
type limitClass struct {
	name              string
	allowed, degraded prometheus.Counter
	wait              prometheus.Observer
}

func newLimits(r *prometheus.Registry) limits {
	allowed, degraded, wait := counter(r, limitAllowed), counter(r, limitDegraded), histogram(r, limitWait, lockBuckets)
	return limits{
		classes: newClasses(func(name string) *limitClass {
			return &limitClass{name, allowed.WithLabelValues(name), degraded.WithLabelValues(name), wait.WithLabelValues(name)}
		}),
		refused: counter(r, limitRefused), paused: counter(r, limitPaused), outages: counter(r, limitOutages).WithLabelValues(),
	}
}

// ObserveLimit counts an event of a Limiter.
func (m *Metrics) ObserveLimit(e limit.Event) {
	l := &m.limits
	switch e := e.(type) {
	case limit.Granted:
		c := l.classes.of(e.Key)
		c.allowed.Inc()
		c.wait.Observe(e.Waited.Seconds())
		if e.Degraded {
			c.degraded.Inc()
		}
	case limit.Refused:
		l.refused.WithLabelValues(l.classes.of(e.Key).name, limitReason(e)).Inc()
	case limit.Paused:
		l.paused.WithLabelValues(l.classes.of(e.Key).name).Inc()
	case limit.Unavailable:
		l.outages.Inc()
	}
}

// limitReason returns one word for the reason of a refusal.
func limitReason(e limit.Refused) string {
	limited, ok := errors.AsType[*limit.LimitedError](e.Err)
	switch {
	case errors.Is(e.Err, limit.ErrUnavailable):
		return "unavailable"
	case ok && limited.Full:
		return "full"
	case ok && limited.Paused != nil, e.Err == nil && e.By == limit.Rate{}:
		return "paused"
	case ok, e.Err == nil:
		return "limited"
	}
	return "other"
}

// Limiter adds the waiting calls of l, which each scrape reads, and its scope. It
// must be called once.
func (m *Metrics) Limiter(l *limit.Limiter) {
	info := l.Info()
	m.registry.MustRegister(
		gaugeOf(limitWaiting, func() float64 { return float64(l.Stats().Waiting) }),
		gaugeOf(limitAvailable, func() float64 {
			if l.Unavailable() != nil {
				return 0
			}
			return 1
		}),
	)
	gauge(m.registry, limitScope).WithLabelValues(info.Name).Set(float64(info.Scope))
}
