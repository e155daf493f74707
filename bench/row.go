package main

import "context"

// row is one line of work: it measures mega and its peers side by side.
type row struct {
	name    string
	subject string
	about   string
	run     func(ctx context.Context, l *lab) ([]claim, error)
}

// The subjects, in the order of the report.
const (
	inMemory   = "memory"
	onRedis    = "redis"
	inCluster  = "cluster"
	ofBus      = "bus"
	onNATS     = "NATS"
	ofLimits   = "limits"
	ofShell    = "shell"
	ofGrowth   = "growth"
	ofPrograms = "programs"
)

func subjects() []string {
	return []string{inMemory, onRedis, inCluster, ofBus, onNATS, ofLimits, ofShell, ofGrowth, ofPrograms}
}

func allRows() []row {
	return []row{
		{"memory-alone", inMemory, "Acquire and Release of a free key, beside a keyed mutex and a semaphore", memoryAlone},
		{"memory-primitives", inMemory, "a pool of 10 slots and WithAll of 3 keys, beside a plain lock", memoryPrimitives},
		{"memory-limit", ofLimits, "Allow of one unit, and the worst window of 20 per 50 ms, beside golang.org/x/time/rate", memoryLimit},
		{"bus-memory", ofBus, "an event for one subscription, beside a channel and watermill's gochannel", busMemory},
		{"bus-subscriptions", ofGrowth, "an event for one of 100 000 subscriptions, beside a bus with one", busSubscriptions},
		{"bus-flow", ofBus, "events for one and for eight subscriptions that handle them meanwhile, beside a channel and gochannel", busFlow},
		{"redis-alone", onRedis, "acquire and whole cycle of a free key, one after the other", redisAlone},
		{"redis-limit", ofLimits, "Allow of one unit under one and two rates, and the worst window of 20 per 50 ms, beside a minimal GCRA script and redis_rate", redisLimit},
		{"redis-primitives", onRedis, "a pool of 10 slots and WithAll of 3 keys, beside a plain lock", redisPrimitives},
		{"redis-32-keys", onRedis, "32 goroutines, each with its own key", redisManyKeys},
		{"redis-handover", onRedis, "from Release here to Acquire there, in another process", redisHandover},
		{"redis-distant", onRedis, "a cycle and a hand-over over a network with a round trip of 1 ms", redisDistant},
		{"redis-aof", onRedis, "bytes in the append-only file, beside redislock", redisAOF},
		{"redis-keys", ofGrowth, "40 000 keys held at once: memory and time of each, and what is left of them", redisKeys},
		{"redis-contended", onRedis, "4 processes of 8 goroutines want one key", redisContended},
		{"redis-processes", onRedis, "2, 8 and 32 processes of 1 and of 4 goroutines want one key", redisProcesses},
		{"redis-idle", onRedis, "200 goroutines wait for a key that is not released", redisIdle},
		{"memory-keys", ofGrowth, "1 000 000 keys held at once: memory and time of each, and what is left of them", memoryKeys},
		{"memory-growth", ofGrowth, "10, 100 and 1 000 goroutines of one process, on one key and on a key each", memoryGrowth},
		{"redis-growth", ofGrowth, "10, 100 and 1 000 clients in 4 processes, on one key and on a key each", redisGrowth},
		{"cluster-growth", ofGrowth, "10, 100 and 1 000 clients in 4 processes, on one key and on a key each", clusterGrowth},
		{"guard-sql", inMemory, "a transaction on SQLite under guard.SQL, beside the same one without it", guardSQL},
		{"nats-publish", onNATS, "events of 128 bytes, without and with a header, beside nats.go", natsPublish},
		{"cluster-alone", inCluster, "Acquire and Release of a free key, beside two echoes and flock", clusterAlone},
		{"cluster-kill9", inCluster, "from the death of a holder to the next one's lock, beside flock", clusterKill9},
		{"cluster-publish", ofBus, "events of 128 bytes from one process to another, beside nats.go", clusterPublish},
		{"nats-request", onNATS, "a request and its answer, one after the other, beside nats.go", natsRequest},
		{"shell-exec", ofShell, "`mega-lock exec KEY -- echo` over the socket of a keeper and on Redis, beside flock(1) and sem of GNU parallel", shellExec},
		{"hello-world", ofPrograms, "start and size of a program that says hello, beside net/http", helloWorld},
	}
}

// claim is one promise about speed, with what was measured.
type claim struct {
	Row  string `json:"row"`
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Mega is the median of the repetitions, as are the others' figures.
	Mega   float64  `json:"mega"`
	Others []figure `json:"others,omitempty"`
	// Against names the one of Others that Value is a ratio to; without it
	// Value is Mega.
	Against string  `json:"against,omitempty"`
	Value   float64 `json:"value"`
	// Low and High are the quartiles of Value over the repetitions.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Bound is the target: an upper bound, or a lower one with AtLeast. A
	// claim without a bound is for information.
	Bound   float64 `json:"bound,omitempty"`
	AtLeast bool    `json:"at_least,omitempty"`
	// Over names the count that Curves run over, such as "clients".
	Over   string  `json:"over,omitempty"`
	Curves []curve `json:"curves,omitempty"`

	noise float64 // by which share runs differ; 0 for the usual one
}

type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// curve shows how a figure grows: Y, in the unit of its claim, for each X.
type curve struct {
	Name   string  `json:"name"`
	Points []point `json:"points"`
}

type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

func (c claim) missed() bool {
	switch {
	case c.Bound == 0:
		return false
	case c.AtLeast:
		return c.Value < c.Bound
	}
	return c.Value > c.Bound
}

// worse returns by which share a value is worse than an earlier one; negative
// means better.
func (c claim) worse(earlier float64) float64 {
	switch {
	case c.AtLeast:
		return 1 - c.Value/earlier
	}
	return c.Value/earlier - 1
}

// samples holds what each contestant achieved, one value per repetition.
type samples map[string][]float64

func (s samples) add(name string, v float64) { s[name] = append(s[name], v) }

const mega = "mega"

// ratio makes a claim about mega's figure as a multiple of another's in the
// same repetition.
func (s samples) ratio(name, unit, against string, others ...string) claim {
	c := s.figures(name, unit, others...)
	c.Against = against
	ratios := make([]float64, len(s[mega]))
	for i, v := range s[mega] {
		ratios[i] = v / s[against][i]
	}
	return c.judge(ratios)
}

// absolute makes a claim about mega's figure itself.
func (s samples) absolute(name, unit string, others ...string) claim {
	return s.figures(name, unit, others...).judge(s[mega])
}

func (s samples) figures(name, unit string, others ...string) claim {
	c := claim{Name: name, Unit: unit, Mega: median(s[mega])}
	for _, o := range others {
		c.Others = append(c.Others, figure{o, median(s[o])})
	}
	return c
}

func (c claim) judge(values []float64) claim {
	c.Value, c.Low, c.High = median(values), quantile(values, 0.25), quantile(values, 0.75)
	return c
}

// over adds the curves behind the claim, one for each contestant.
func (c claim) over(count string, curves ...curve) claim {
	c.Over, c.Curves = count, curves
	return c
}

func (c claim) atMost(bound float64) claim {
	c.Bound = bound
	return c
}

// noisy reports whether runs differ by at least this share.
func (c claim) noisy(share float64) claim {
	c.noise = share
	return c
}

func (c claim) atLeast(bound float64) claim {
	c.Bound, c.AtLeast = bound, true
	return c
}
