package boot

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

// checkTime is the default budget of a check.
const checkTime = 2 * time.Second

// probes reports whether the process lives, whether it has started, and whether
// it is ready for traffic. A failed dependency makes the process unready, never
// dead: a restart would not help.
type probes struct {
	ctx    context.Context // of the checks; ends with readiness
	cancel context.CancelFunc
	veil   *veil // masks what checks report; may be nil
	state  atomic.Int32

	mu       sync.Mutex // guards the fields below
	checks   []*check
	degraded []string
}

// The states of a process.
const (
	starting int32 = iota
	ready
	stopping
)

func newProbes() *probes {
	p := &probes{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// add adds a check to the readiness.
func (p *probes) add(h hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, &check{hook: h})
}

// addBackend adds the check of a backend. Without the backend the process is
// unready if the configuration requires the backend, otherwise degraded: most
// requests may not need it.
func (p *probes) addBackend(h hook, required bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, &check{hook: h, backend: true, required: required})
}

// degrade adds an entry to the list of limitations. It does not change the
// status, since the configuration selected the limitation.
func (p *probes) degrade(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.degraded = append(p.degraded, what)
}

// begin marks the process as started and ready for traffic.
func (p *probes) begin() { p.state.CompareAndSwap(starting, ready) }

// end marks the process as not ready and cancels the checks: the services that
// they examine close soon.
func (p *probes) end() {
	p.mu.Lock()
	p.state.Store(stopping)
	p.mu.Unlock()
	p.cancel()
}

// touch takes the locks that the probes take. It returns when the probes can
// respond.
func (p *probes) touch() { _ = p.all() }

// drain waits for the running checks. It follows end, which prevents new ones.
func (p *probes) drain(ctx context.Context) error {
	for _, c := range p.all() {
		r := c.current()
		if r == nil {
			continue
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("the check %q has not ended for %v", c.name, time.Since(r.began).Round(time.Millisecond))
		}
	}
	return nil
}

func (p *probes) all() []*check {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checks
}

// readiness is the response of /readyz.
type readiness struct {
	Status   string            `json:"status"`
	Reasons  map[string]string `json:"reasons,omitempty"`  // by name of the failed check
	Degraded []string          `json:"degraded,omitempty"` // limitations of the process
	Checks   []checked         `json:"checks,omitempty"`   // with ?verbose
}

// checked is the result of a check.
type checked struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, degraded, failed
	Took   string `json:"took"`
	Error  string `json:"error,omitempty"`
}

func (p *probes) livez(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, readiness{Status: "ok"})
}

func (p *probes) startupz(w http.ResponseWriter, _ *http.Request) {
	if p.state.Load() == starting {
		answer(w, http.StatusServiceUnavailable, readiness{Status: "starting"})
		return
	}
	answer(w, http.StatusOK, readiness{Status: "ok"})
}

func (p *probes) readyz(w http.ResponseWriter, r *http.Request) {
	status, is := p.ready(r.Context(), r.URL.Query().Has("verbose"))
	answer(w, status, is)
}

// ready runs the checks concurrently.
func (p *probes) ready(ctx context.Context, verbose bool) (int, readiness) {
	is := readiness{}
	switch p.state.Load() {
	case starting:
		is.Status = "starting"
		return http.StatusServiceUnavailable, is
	case stopping:
		is.Status = "stopping"
		return http.StatusServiceUnavailable, is
	}
	is.Status, is.Degraded = "ok", p.weaker()
	results := p.run(ctx)
	if verbose {
		is.Checks = results
	}
	is.Reasons = map[string]string{}
	for _, c := range results {
		switch {
		case c.Error == "":
		case c.Status == "degraded":
			is.Degraded = append(slices.Clip(is.Degraded), c.Name+" backend lost: "+c.Error)
		default:
			is.Reasons[c.Name] = c.Error
		}
	}
	if len(is.Reasons) == 0 {
		return http.StatusOK, is
	}
	is.Status = "not ready"
	return http.StatusServiceUnavailable, is
}

func (p *probes) weaker() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.degraded
}

func (p *probes) run(ctx context.Context) []checked {
	checks := p.all()
	results := make([]checked, len(checks))
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
func (p *probes) ask(ctx context.Context, c *check) checked {
	began := time.Now()
	err := errStopping
	if r := p.attempt(c); r != nil {
		err = r.wait(ctx, c.budget)
	}
	is := checked{Name: c.name, Status: "ok", Took: time.Since(began).Round(time.Microsecond).String()}
	if err != nil {
		is.Status, is.Error = "failed", p.veil.text(err.Error())
		if c.backend && !c.required {
			is.Status = "degraded"
		}
	}
	return is
}

var errStopping = errors.New("the process is stopping")

// attempt joins the running attempt of a check, or begins one. It returns nil
// if the process is stopping.
func (p *probes) attempt(c *check) *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Load() == stopping {
		return nil
	}
	r, begun := c.begin()
	if begun {
		go c.do(p.ctx, r) // drain waits for it
	}
	return r
}

// check is one condition of readiness.
type check struct {
	hook
	backend  bool // it checks a backend of locks or messages
	required bool // without the backend the process is unready

	mu  sync.Mutex // guards now
	now *attempt   // the running attempt
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

func (c *check) do(ctx context.Context, r *attempt) {
	ctx, cancel := context.WithTimeout(ctx, c.budget)
	defer cancel()
	r.err = errGone
	defer func() {
		c.mu.Lock()
		c.now = nil
		c.mu.Unlock()
		close(r.done)
	}()
	r.err = contained(ctx, c.run)
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
		return fmt.Errorf("it has not answered for %v", time.Since(r.began).Round(time.Millisecond))
	}
}
