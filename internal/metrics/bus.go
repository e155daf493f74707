package metrics

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/megaframework/mega/bus"
)

// The series of the bus. Counters include the subscriptions that have ended;
// gauges show the existing subscriptions, by name.
var (
	busPublished  = Series{"mega_bus_published_total", "counter", nil, "Events published by this process."}
	busLost       = Series{"mega_bus_published_lost_total", "counter", nil, "Published messages that may be lost: the connection ended before the backend confirmed them."}
	busRefused    = Series{"mega_bus_published_refused_total", "counter", nil, "Published messages that the backend refused."}
	busExpired    = Series{"mega_bus_published_expired_total", "counter", nil, "Published messages that expired before they were sent."}
	busRequests   = Series{"mega_bus_requests_total", "counter", nil, "Requests made by this process."}
	busUnanswered = Series{"mega_bus_requests_unanswered_total", "counter", []string{"reason"}, "Requests without an answer, by reason: no_responders or timeout."}
	busLate       = Series{"mega_bus_late_answers_total", "counter", nil, "Answers that arrived after their request had ended."}
	busInFlight   = Series{"mega_bus_requests_in_flight", "gauge", nil, "Requests without an answer yet."}
	busMessages   = Series{"mega_bus_messages_total", "counter", []string{"outcome"}, "Messages received by subscriptions, by outcome: handled, dropped, expired or discarded."}
	busDropped    = Series{"mega_bus_dropped_total", "counter", []string{"subscription"}, "Messages dropped because a subscription was too slow. mega_bus_messages_total includes them."}
	busFailures   = Series{"mega_bus_handler_failures_total", "counter", []string{"kind"}, "Handled messages whose handler failed, by kind: error or panic."}
	busMissed     = Series{"mega_bus_missed_total", "counter", nil, "Known losses of messages on the way to subscriptions."}
	busGaps       = Series{"mega_bus_gaps_total", "counter", nil, "Losses of an unknown number of messages on the way to subscriptions."}
	busOutages    = Series{"mega_bus_outages_total", "counter", nil, "Disconnections from the backend."}
	busConnected  = Series{"mega_bus_connected", "gauge", nil, "1 if the backend is connected, else 0."}
	busPending    = Series{"mega_bus_pending", "gauge", []string{"subscription"}, "Messages in the queues of subscriptions."}
	busRunning    = Series{"mega_bus_running", "gauge", []string{"subscription"}, "Messages in running handlers."}
	busSeconds    = Series{"mega_bus_handler_seconds", "histogram", []string{"subscription"}, "Duration of handlers and responders."}
	busScope      = Series{"mega_bus_scope", "gauge", []string{"driver"}, "Scope of messages: 0 this process, 1 this node, 2 the fleet."}
)

// busBuckets reach from a handler in memory to a handler that is reported as
// stuck.
var busBuckets = []float64{0.00001, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30}

func busCatalogue() []Series {
	return []Series{
		busPublished, busLost, busRefused, busExpired, busRequests, busUnanswered, busLate, busInFlight, busMessages, busDropped, busFailures, busMissed, busGaps,
		busOutages, busConnected, busPending, busRunning, busSeconds, busScope,
	}
}

// Bus adds a bus's counters, which each scrape reads, and its scope. It must be
// called once.
func (m *Metrics) Bus(b *bus.Bus) {
	info := b.Info()
	gauge(m.registry, busScope).WithLabelValues(info.Name).Set(float64(info.Scope))
	m.registry.MustRegister(newBusCollector(b))
}

// ObserveBus counts events of a bus that its statistics do not keep: the
// counters of a subscription disappear when it ends.
func (m *Metrics) ObserveBus(e bus.Event) {
	if dropped, ok := e.(bus.Dropped); ok {
		m.dropped.of(dropped.Name).Add(float64(dropped.Count))
	}
}

// Timed measures the duration of each call of a handler.
func (m *Metrics) Timed(next bus.Handler) bus.Handler {
	var once sync.Once
	var took prometheus.Observer
	return func(ctx context.Context, msg *bus.Msg) error {
		once.Do(func() { took = m.handlers.of(msg.Subscription()) })
		began := time.Now()
		defer func() { took.Observe(time.Since(began).Seconds()) }()
		return next(ctx, msg)
	}
}

// bySubscription holds metrics of one kind, by the name of the subscription.
type bySubscription[T any] struct {
	with func(labels ...string) T

	mu    sync.Mutex // guards known
	known map[string]T
}

func newBySubscription[T any](with func(labels ...string) T) *bySubscription[T] {
	return &bySubscription[T]{with: with, known: map[string]T{}}
}

// of returns the metric of a subscription, or the shared one after
// maxSubscriptions.
func (s *bySubscription[T]) of(name string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.known[name]; ok {
		return found
	}
	if len(s.known) >= maxSubscriptions {
		return s.with(otherClass)
	}
	name = strings.Clone(name)
	s.known[name] = s.with(strings.ToValidUTF8(name, "?"))
	return s.known[name]
}

// busCollector reads the statistics of a bus.
type busCollector struct {
	bus   *bus.Bus
	descs map[string]*prometheus.Desc // by name
}

func newBusCollector(b *bus.Bus) *busCollector {
	c := &busCollector{b, map[string]*prometheus.Desc{}}
	for _, s := range busCatalogue() {
		if s.Name != busScope.Name && s.Name != busSeconds.Name && s.Name != busDropped.Name {
			c.descs[s.Name] = s.desc()
		}
	}
	return c
}

// Describe is for the registry.
func (c *busCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect is for the registry.
func (c *busCollector) Collect(out chan<- prometheus.Metric) {
	st := c.bus.Stats()
	count := func(s Series, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(c.descs[s.Name], prometheus.CounterValue, float64(n), labels...)
	}
	level := func(s Series, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(c.descs[s.Name], prometheus.GaugeValue, float64(n), labels...)
	}
	count(busPublished, st.Published)
	count(busLost, st.Lost)
	count(busRefused, st.Refused)
	count(busExpired, st.Expired)
	count(busRequests, st.Requested)
	count(busUnanswered, st.NoResponders, "no_responders")
	count(busUnanswered, st.TimedOut, "timeout")
	count(busLate, st.Late)
	level(busInFlight, st.InFlight)
	for outcome, n := range map[string]uint64{
		"handled": st.Total.Handled, "dropped": st.Total.Dropped, "expired": st.Total.Expired, "discarded": st.Total.Discarded,
	} {
		count(busMessages, n, outcome)
	}
	count(busFailures, st.Total.Failed-min(st.Total.Panicked, st.Total.Failed), "error")
	count(busFailures, st.Total.Panicked, "panic")
	count(busMissed, st.Total.Missed)
	count(busGaps, st.Total.Gaps)
	count(busOutages, st.Cuts)
	level(busConnected, connected(st.State))
	for name, load := range loads(st.Subs) {
		level(busPending, load.Pending, name)
		level(busRunning, load.Running, name)
	}
}

func connected(s bus.State) int {
	if s == bus.StateDisconnected || s == bus.StateClosed {
		return 0
	}
	return 1
}

// maxSubscriptions bounds the names of subscriptions, as maxClasses bounds the
// classes of keys.
const maxSubscriptions = 200

// loads returns the waiting and running messages, by the name of the
// subscription. Subscriptions with the same name are added.
func loads(subs []bus.SubStats) map[string]bus.SubStats {
	all := map[string]bus.SubStats{}
	for _, s := range subs {
		name := strings.ToValidUTF8(s.Name, "?")
		if _, known := all[name]; !known && len(all) >= maxSubscriptions {
			name = otherClass
		}
		sum := all[name]
		sum.Pending += s.Pending
		sum.Running += s.Running
		all[name] = sum
	}
	return all
}
