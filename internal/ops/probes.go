package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Probes reports whether the process lives, whether it has started, and whether
// it is ready for traffic. A failed dependency makes the process unready, never
// dead: a restart would not help.
type Probes struct {
	ctx    context.Context // of the checks; ends with readiness
	cancel context.CancelFunc
	mask   func(string) string // masks secrets in the errors of checks
	state  atomic.Int32

	mu       sync.Mutex // guards the fields below
	checks   []*check
	warnings []*check
	degraded []string
}

// The states of a process.
const (
	starting int32 = iota
	ready
	stopping
)

// NewProbes returns the probes of a process that starts. mask masks secrets in
// the errors of checks.
func NewProbes(mask func(string) string) *Probes {
	p := &Probes{mask: mask}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Add adds a check to the readiness.
func (p *Probes) Add(c Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, &check{Check: c})
}

// AddBackend adds the check of a backend. Without the backend the process is
// unready if the configuration requires the backend, otherwise degraded: most
// requests may not need it.
func (p *Probes) AddBackend(c Check, required bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, &check{Check: c, optional: !required})
}

// AddWarning adds a check whose error is a limitation of the process. It does
// not change the status, and only its error is listed.
func (p *Probes) AddWarning(c Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warnings = append(p.warnings, &check{Check: c})
}

// Degrade adds an entry to the list of limitations. It does not change the
// status, since the configuration selected the limitation.
func (p *Probes) Degrade(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.degraded = append(p.degraded, what)
}

// Begin marks the process as started and ready for traffic.
func (p *Probes) Begin() { p.state.CompareAndSwap(starting, ready) }

// End marks the process as not ready and cancels the checks: the services that
// they examine close soon.
func (p *Probes) End() {
	p.mu.Lock()
	p.state.Store(stopping)
	p.mu.Unlock()
	p.cancel()
}

// Touch takes and releases the locks that the probes take, and so returns only if
// the probes can respond.
func (p *Probes) Touch() { p.all() }

// Drain waits for the running checks. It follows End, which prevents new ones.
func (p *Probes) Drain(ctx context.Context) error {
	checks, warnings := p.all()
	for _, c := range slices.Concat(checks, warnings) {
		r := c.current()
		if r == nil {
			continue
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("check %q still runs after %v", c.Name, time.Since(r.began).Round(time.Millisecond))
		}
	}
	return nil
}

func (p *Probes) all() (checks, warnings []*check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checks, p.warnings
}

// Readiness is the response of /readyz.
type Readiness struct {
	Status   string            `json:"status"`             // ok, starting, stopping or "not ready"
	Reasons  map[string]string `json:"reasons,omitempty"`  // by name of the failed check
	Degraded []string          `json:"degraded,omitempty"` // limitations of the process
	Checks   []Result          `json:"checks,omitempty"`   // with ?verbose
}

// status returns the HTTP status of a response with r.
func (r Readiness) status() int {
	if r.Status == "ok" {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// Result is the result of a check.
type Result struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, degraded, failed
	Took   string `json:"took"`
	Error  string `json:"error,omitempty"`
}

// addProbes adds the probes to mux. started reports whether the start has succeeded, and
// ready returns the readiness, with the results of the checks if verbose is set.
func addProbes(mux *http.ServeMux, started func() bool, ready func(ctx context.Context, verbose bool) Readiness) {
	answer := func(w http.ResponseWriter, r Readiness) { writeJSON(w, r.status(), r) }
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, Readiness{Status: "ok"}) })
	mux.HandleFunc("/startupz", func(w http.ResponseWriter, _ *http.Request) {
		r := Readiness{Status: "starting"}
		if started() {
			r.Status = "ok"
		}
		answer(w, r)
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		answer(w, ready(r.Context(), r.URL.Query().Has("verbose")))
	})
}

// started reports whether Begin was called, or End.
func (p *Probes) started() bool { return p.state.Load() != starting }

// Ready runs all checks concurrently and returns the readiness of the process, with
// the results of the checks if verbose is set. It returns when every check has
// ended, has exceeded its budget, or ctx has ended.
func (p *Probes) Ready(ctx context.Context, verbose bool) Readiness {
	switch p.state.Load() {
	case starting:
		return Readiness{Status: "starting"}
	case stopping:
		return Readiness{Status: "stopping"}
	}
	ready := Readiness{Status: "ok", Degraded: p.limitations(), Reasons: map[string]string{}}
	checks, warnings := p.all()
	results := p.run(ctx, slices.Concat(checks, warnings))
	for _, w := range results[len(checks):] {
		if w.Error != "" {
			ready.Degraded = append(ready.Degraded, w.Error)
		}
	}
	results = results[:len(checks)]
	if verbose {
		ready.Checks = results
	}
	for _, c := range results {
		switch {
		case c.Error == "":
		case c.Status == "degraded":
			ready.Degraded = append(ready.Degraded, c.Name+" backend lost: "+c.Error)
		default:
			ready.Status, ready.Reasons[c.Name] = "not ready", c.Error
		}
	}
	return ready
}

// limitations returns the entries that Degrade has added.
func (p *Probes) limitations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.degraded)
}

// run runs checks concurrently and returns their results in the same order.
func (p *Probes) run(ctx context.Context, checks []*check) []Result {
	results := make([]Result, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { results[i] = p.ask(ctx, c) })
	}
	wg.Wait()
	return results
}

// ask returns the result of a check. Callers that arrive while the check runs
// wait for the same result, so that a check that hangs occupies one goroutine,
// however often it is called.
func (p *Probes) ask(ctx context.Context, c *check) Result {
	began := time.Now()
	err := errStopping
	if r := p.attempt(c); r != nil {
		err = r.wait(ctx, c.Budget)
	}
	result := Result{Name: c.Name, Status: "ok", Took: time.Since(began).Round(time.Microsecond).String()}
	if err != nil {
		result.Status, result.Error = "failed", p.mask(err.Error())
		if c.optional {
			result.Status = "degraded"
		}
	}
	return result
}

var errStopping = errors.New("the process is stopping")

// attempt joins the running attempt of a check, or begins one. It returns nil
// if the process is stopping.
func (p *Probes) attempt(c *check) *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Load() == stopping {
		return nil
	}
	r, begun := c.begin()
	if begun {
		go c.do(p.ctx, r) // Drain waits for it
	}
	return r
}

// Check is a condition of readiness.
type Check struct {
	Name   string
	Budget time.Duration
	Run    func(context.Context) error // must not panic
}

// errGoexit is the error of a check that called runtime.Goexit.
var errGoexit = errors.New("its goroutine ended before it returned")

// check is a registered Check. It is one condition of readiness.
type check struct {
	Check
	optional bool // its failure makes the process degraded, not unready

	mu  sync.Mutex // guards now
	now *attempt   // the running attempt, or nil
}

// attempt is one run of a check.
type attempt struct {
	began time.Time
	done  chan struct{} // closed when err is set
	err   error
}

func (c *check) current() *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// begin returns the running attempt, or a new one, which the caller has to run.
func (c *check) begin() (r *attempt, begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		c.now, begun = &attempt{began: time.Now(), done: make(chan struct{})}, true
	}
	return c.now, begun
}

// do runs the attempt r, which begin has made.
func (c *check) do(ctx context.Context, r *attempt) {
	ctx, cancel := context.WithTimeout(ctx, c.Budget)
	defer cancel()
	r.err = errGoexit
	defer func() {
		c.mu.Lock()
		c.now = nil
		c.mu.Unlock()
		close(r.done)
	}()
	r.err = c.Run(ctx)
}

// checkGrace is the time that a check has to return after the end of its
// context, before the caller stops waiting for it.
const checkGrace = 100 * time.Millisecond

// wait returns the result of the attempt, or an error with its duration if it
// does not end in time.
func (r *attempt) wait(ctx context.Context, budget time.Duration) error {
	timer := time.NewTimer(time.Until(r.began.Add(budget + checkGrace)))
	defer timer.Stop()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("no result after %v", time.Since(r.began).Round(time.Millisecond))
	}
}
