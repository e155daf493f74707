//go:build linux || darwin

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/testkit/history"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// nameEnv makes this test binary a worker of that name; recordEnv is where it
// records its grants.
const (
	nameEnv   = "MEGA_TEST_SOAK_NAME"
	recordEnv = "MEGA_TEST_SOAK_RECORD"
)

func TestMain(m *testing.M) {
	name := os.Getenv(nameEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	conn, err := cluster.Inherited(3)
	if err == nil {
		err = Run(context.Background(), name, cluster.Config{Conn: conn}, os.Getenv(recordEnv))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// workers is how many there are at any time. The first is never killed: what
// leaks in a process that lives on would show in it.
const workers = 4

// calmed is how many messages each worker publishes in a calm phase.
const calmed = 500

// length returns the rounds and how long each lasts: two of 10 s at a scale of
// 1; above that, three of 60 s for each step, an hour at 20.
func length() (rounds int, each time.Duration) {
	scale, err := strconv.ParseFloat(os.Getenv("MEGA_TEST_SCALE"), 64)
	if err != nil || scale <= 0 {
		scale = 1
	}
	if scale <= 1 {
		return 2, max(3*time.Second, time.Duration(scale*float64(10*time.Second)))
	}
	return int(3 * scale), time.Minute
}

func TestNothingIsLostGrantedTwiceOrLeaked(t *testing.T) {
	rounds, each := length()
	n := newNode(t)
	var first, last Report
	var here, now usage
	for round := range rounds {
		n.begin(round)
		n.chaos(each)
		n.awaken(0)
		reports := n.rest()
		n.balances()
		n.verify()
		last, now = reports[0], measure()
		if round == 0 {
			first, here = last, now
		}
	}
	t.Logf("%d killed, %d stopped, %d ended; %d grants, %d terms, %d runs; the first worker: %+v", n.killed, n.paused, n.ended, n.grants, n.terms, n.runs, last)
	leaks(t, "the hub's process", here, now)
	leaks(t, "the first worker", usage{first.Goroutines, first.Files, first.Heap}, usage{last.Goroutines, last.Files, last.Heap})
	if n.killed == 0 || n.grants == 0 || n.terms == 0 || n.runs == 0 || last.Received == 0 || last.Answered == 0 {
		t.Error("nothing has happened")
	}
}

// probes begins the keys with which a process tries a backend that it has missed,
// as after a stop. They end after 100 ms, by themselves.
const probes = "mega.probe:"

// usage is what a process has in use.
type usage struct {
	goroutines, files int
	heap              uint64
}

func measure() usage {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{runtime.NumGoroutine(), openFiles(), m.HeapAlloc}
}

func leaks(t *testing.T, who string, first, last usage) {
	t.Helper()
	t.Logf("%s: %+v after the first round, %+v after the last", who, first, last)
	if last.goroutines > first.goroutines+4 || last.files > first.files+4 || last.heap > first.heap+first.heap/2+4<<20 {
		t.Errorf("%s has grown", who)
	}
}

// node is the hub and its workers.
type node struct {
	t        *testing.T
	dir      string
	hub      *cluster.Hub
	self     *cluster.Node // this process's own part
	locker   *lock.Locker
	record   string // where this round is recorded
	recorder *history.Recorder
	children []*child
	started  int

	killed, paused, ended int
	grants, terms, runs   uint64
}

type child struct {
	name   string
	peer   *cluster.Client
	run    *redistest.Process
	still  time.Time // since when it is stopped by SIGSTOP; zero if it is not
	doomed bool      // it will not run again
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), hub: cluster.NewHub(cluster.HubConfig{Log: slog.New(slog.NewTextHandler(t.Output(), nil))})}
	here, there, err := cluster.Pair()
	n.must(err)
	conn, err := net.FileConn(there)
	n.must(errors.Join(err, there.Close()))
	n.hub.Join(here, "parent")
	n.self, err = cluster.Dial(t.Context(), cluster.Config{Conn: conn})
	n.must(err)
	n.locker, err = lock.New(n.self.Lock(), lock.Config{})
	n.must(err)
	t.Cleanup(n.close)
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// begin has everybody at work, recorded in a file of this round.
func (n *node) begin(round int) {
	n.t.Helper()
	n.record = filepath.Join(n.dir, fmt.Sprintf("round-%d.jsonl", round))
	r, err := history.NewRecorder(n.record, "parent")
	n.must(err)
	n.recorder = r
	for _, c := range n.children {
		n.call(c, Go, []byte(n.record), nil)
	}
	for len(n.children) < workers {
		n.start()
	}
}

// start starts one more worker.
func (n *node) start() {
	n.t.Helper()
	n.started++
	c := &child{name: fmt.Sprint("worker-", n.started)}
	here, there, err := cluster.Pair()
	n.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nameEnv+"="+c.name, recordEnv+"="+n.record)
	cmd.Stderr = n.t.Output()
	cmd.ExtraFiles = []*os.File{there}
	c.run, err = redistest.StartProcess(cmd)
	n.must(errors.Join(err, there.Close()))
	c.peer = n.hub.Join(here, c.name)
	n.children = append(n.children, c)
}

// call asks a worker.
func (n *node) call(c *child, name string, body []byte, answer any) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	text, err := c.peer.Call(ctx, name, body)
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		n.t.Fatalf("%s: %v", c.name, err)
	}
}

// chaos kills, stops or ends a worker every now and then, for so long, and until
// one was killed.
func (n *node) chaos(length time.Duration) {
	n.t.Helper()
	for end := time.Now().Add(length); n.killed == 0 || time.Now().Before(end); {
		time.Sleep(time.Duration(200+rand.IntN(300)) * time.Millisecond)
		c := n.children[1+rand.IntN(workers-1)]
		switch roll := rand.IntN(10); {
		case !c.still.IsZero(): // and it stays so for now
		case roll < 5:
			n.kill(c)
		case roll < 8:
			n.stop(c, roll == 7)
		default:
			n.awaken(0) // it waits for answers of the others
			n.end(c)
			n.start()
		}
		n.awaken(2 * ttl)
	}
}

// stop stops a worker, which is awakened later, or killed as it stands there.
func (n *node) stop(c *child, doomed bool) {
	n.t.Helper()
	if c.doomed = doomed; doomed {
		n.recorder.Gone(c.name)
	}
	n.must(c.run.Pause())
	c.still = time.Now()
	n.paused++
}

// kill kills a worker and starts another.
func (n *node) kill(c *child) {
	n.t.Helper()
	// The next holder may have its lock before this process hears of the death,
	// so that what the victim believed ends here.
	if !c.doomed {
		n.recorder.Gone(c.name)
	}
	n.must(c.run.Kill())
	n.killed++
	n.forget(c)
	n.start()
}

// end has a worker end by itself: it loses nothing and fails in nothing.
func (n *node) end(c *child) {
	n.t.Helper()
	n.call(c, Stop, nil, nil)
	select {
	case <-c.run.Done():
		if err := c.run.Wait(); err != nil {
			n.t.Errorf("%s has ended with %v", c.name, err)
		}
	case <-time.After(30 * time.Second):
		n.t.Fatalf("%s does not end", c.name)
	}
	n.ended++
	n.forget(c)
}

func (n *node) forget(c *child) {
	n.children = slices.DeleteFunc(n.children, func(o *child) bool { return o == c })
}

// awaken has every worker run again, or die, that was stopped for so long.
func (n *node) awaken(after time.Duration) {
	n.t.Helper()
	for _, c := range slices.Clone(n.children) {
		switch {
		case c.still.IsZero() || time.Since(c.still) < after:
		case c.doomed:
			n.kill(c)
		default:
			n.must(c.run.Continue())
			c.still = time.Time{}
		}
	}
}

// rest has every worker at rest, and checks what each of them says.
func (n *node) rest() (reports []Report) {
	n.t.Helper()
	for _, c := range n.children {
		var r Report
		n.call(c, Rest, nil, &r)
		for _, wrong := range r.Wrong {
			n.t.Errorf("%s: %s", c.name, wrong)
		}
		reports = append(reports, r)
	}
	states, err := n.locker.List(n.t.Context(), "")
	n.must(err)
	for _, s := range states { // a pool is remembered after its use
		if len(s.Holders)+len(s.Waiters) > 0 && !strings.HasPrefix(s.Key, probes) {
			n.t.Errorf("at rest there is a lock: %+v", s)
		}
		for _, slot := range s.Slots {
			if slot.Status == lock.SlotWithdrawn { // the worker was killed before it healed the slot
				n.must(n.locker.Heal(n.t.Context(), s.Key, slot.Number, "at rest"))
			}
		}
	}
	return reports
}

// balances checks that nothing is lost while nobody is killed: every worker gets
// each message, and the group each of them once.
func (n *node) balances() {
	n.t.Helper()
	before := n.counts()
	for _, c := range n.children {
		n.call(c, Calm, []byte(strconv.Itoa(calmed)), nil)
	}
	all := workers * calmed
	var group int
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		group = 0
		complete := true
		for i, c := range n.counts() {
			group += c.Group - before[i].Group
			complete = complete && c.Each-before[i].Each == all
		}
		if complete && group == all {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("of %d messages the group was given %d, each %+v, before %+v", all, group, n.counts(), before)
		}
	}
}

func (n *node) counts() (all []Counts) {
	n.t.Helper()
	for _, c := range n.children {
		var counts Counts
		n.call(c, Count, nil, &counts)
		all = append(all, counts)
	}
	return all
}

// verify holds the grants of the round against what was promised.
func (n *node) verify() {
	n.t.Helper()
	n.must(n.recorder.Close())
	h, err := history.Read(n.record)
	n.must(err)
	if err := errors.Join(h.CheckBeliefs(0), h.CheckRuns()); err != nil {
		n.t.Error(err)
	}
	for _, op := range h.Ops {
		switch {
		case op.Kind == history.Run:
			n.runs++
		case op.Kind != history.Acquire || op.Outcome != history.OK:
		case op.Key == leader:
			n.terms++
		default:
			n.grants++
		}
	}
	n.t.Logf("%d operations on locks", len(h.Ops))
	n.must(os.Remove(n.record))
}

func (n *node) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n.awaken(0)
	for _, c := range slices.Clone(n.children) {
		n.end(c)
	}
	if err := errors.Join(n.locker.Close(ctx), n.self.Close(ctx), n.hub.Close(ctx)); err != nil {
		n.t.Error(err)
	}
}
