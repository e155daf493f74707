package main

import (
	"context"

	"github.com/megaframework/mega/bench/internal/buses"
	"github.com/megaframework/mega/bench/internal/growth"
	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/limits"
	"github.com/megaframework/mega/bench/internal/locks"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/programs"
	"github.com/megaframework/mega/bench/internal/report"
)

// row is one line of work: it measures mega and its peers side by side.
type row struct {
	name    string
	subject string
	about   string
	run     func(ctx context.Context, l *lab.Lab) ([]measure.Claim, error)
	copies  int // of this program that measure it, one after the other
}

// severalCopies is how many copies of this program measure a short row: one of
// nanoseconds, or of calls that take a few seconds together. Such a row depends on
// the memory pages that the system has loaded the program into. Of eight copies of
// one program some made a pool 1.16 and some 1.22 times a plain lock, each of them
// always the same.
const severalCopies = 5

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

// pageOutline arranges the rows for the page.
func pageOutline() report.Outline {
	o := report.Outline{Subjects: subjects()}
	for _, r := range allRows() {
		o.Rows = append(o.Rows, report.Description{Name: r.name, Subject: r.subject, About: r.about})
	}
	return o
}

func allRows() []row {
	return []row{
		{"memory-alone", inMemory, "Acquire and Release of a free key, beside a keyed mutex and a semaphore", locks.MemoryAlone, severalCopies},
		{"memory-primitives", inMemory, "a pool of 10 slots and WithAll of 3 keys, beside a plain lock", locks.MemoryPrimitives, severalCopies},
		{"memory-limit", ofLimits, "Allow of one unit, and the worst window of 20 per 50 ms, beside golang.org/x/time/rate", limits.Memory, severalCopies},
		{"bus-memory", ofBus, "an event for one subscription, beside a channel and watermill's gochannel", buses.Memory, severalCopies},
		{"bus-subscriptions", ofGrowth, "an event for one of 100 000 subscriptions, beside a bus with one", buses.Subscriptions, 1},
		{"bus-flow", ofBus, "events for one and for eight subscriptions that handle them meanwhile, beside a channel and gochannel", buses.Flow, severalCopies},
		{"redis-alone", onRedis, "acquire and whole cycle of a free key, one after the other", locks.RedisAlone, 1},
		{"redis-limit", ofLimits, "Allow of one unit under one and two rates, and the worst window of 20 per 50 ms, beside a minimal GCRA script and redis_rate", limits.Redis, 1},
		{"redis-primitives", onRedis, "a pool of 10 slots and WithAll of 3 keys, beside a plain lock", locks.RedisPrimitives, severalCopies},
		{"redis-32-keys", onRedis, "32 goroutines, each with its own key", locks.RedisManyKeys, 1},
		{"redis-handover", onRedis, "from Release here to Acquire there, in another process", locks.RedisHandover, 1},
		{"redis-distant", onRedis, "a cycle and a hand-over over a network with a round trip of 1 ms", locks.RedisDistant, 1},
		{"redis-aof", onRedis, "bytes in the append-only file, beside redislock", locks.RedisAOF, 1},
		{"redis-keys", ofGrowth, "40 000 keys held at once: memory and time of each, and what is left of them", growth.RedisKeys, 1},
		{"redis-contended", onRedis, "4 processes of 8 goroutines want one key", locks.RedisContended, 1},
		{"redis-processes", onRedis, "2, 8 and 32 processes of 1 and of 4 goroutines want one key", locks.RedisProcesses, 1},
		{"redis-idle", onRedis, "200 goroutines wait for a key that is not released", locks.RedisIdle, 1},
		{"memory-keys", ofGrowth, "1 000 000 keys held at once: memory and time of each, and what is left of them", growth.MemoryKeys, 1},
		{"memory-growth", ofGrowth, "10, 100 and 1 000 goroutines of one process, on one key and on a key each", growth.Memory, 1},
		{"redis-growth", ofGrowth, "10, 100 and 1 000 clients in 4 processes, on one key and on a key each", growth.Redis, 1},
		{"cluster-growth", ofGrowth, "10, 100 and 1 000 clients in 4 processes, on one key and on a key each", growth.Cluster, 1},
		{"guard-sql", inMemory, "a transaction on SQLite under guard.SQL, beside the same one without it", locks.GuardSQL, 1},
		{"nats-publish", onNATS, "events of 128 bytes, without and with a header, beside nats.go", buses.NATSPublish, severalCopies},
		{"cluster-alone", inCluster, "Acquire and Release of a free key, beside two echoes and flock", locks.ClusterAlone, 1},
		{"cluster-kill9", inCluster, "from the death of a holder to the next one's lock, beside flock", locks.ClusterKill9, 1},
		{"cluster-publish", ofBus, "events of 128 bytes from one process to another, beside nats.go", buses.ClusterPublish, 1},
		{"nats-request", onNATS, "a request and its answer, one after the other, beside nats.go", buses.NATSRequest, severalCopies},
		{"shell-exec", ofShell, "`mega-lock exec KEY -- echo` over the socket of a keeper and on Redis, beside flock(1) and sem of GNU parallel", programs.ShellExec, 1},
		{"hello-world", ofPrograms, "start and size of a program that says hello, beside net/http", programs.HelloWorld, 1},
	}
}
