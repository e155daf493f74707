package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/settings"
)

// Reload loads and checks the configuration. If it is valid, Reload makes the
// workers load it.
func (s *Supervisor) Reload(ctx context.Context) ([]config.Change, error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	files := new(settings.Files)
	next, changes, err := s.config.Load(s.settings, files, s.inputs.of(s.runner.Oldest()).Start)
	if err != nil {
		if !s.runner.ends() { // which ends the wait for providers
			s.log.Error("configuration reload refused", "error", err)
		}
		return nil, err
	}
	s.settings = next
	s.inputs.reload(files)
	s.runner.Again() // retries workers that could not start with the previous configuration
	return changes, s.reloadWorkers(ctx)
}

// reloadWorkers makes all workers reload the configuration from the checked
// files.
func (s *Supervisor) reloadWorkers(ctx context.Context) error {
	s.mu.Lock()
	s.reloads++
	lines := slices.Collect(maps.Values(s.lines))
	s.mu.Unlock()
	errs := make([]error, len(lines))
	var all sync.WaitGroup
	for i, l := range lines {
		all.Go(func() { errs[i] = s.reloadWorker(ctx, l) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// reloadTime is the timeout of a worker's reload.
const reloadTime = 10 * time.Second

// reloadWorker makes a worker reload the configuration. A worker that is still
// starting does so when it is ready.
func (s *Supervisor) reloadWorker(ctx context.Context, l *workerLine) error {
	if l.process.Worker().State != Ready {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	var body []byte
	var err error
	if live := s.inputs.live(l.process.generation); live != nil {
		body, err = json.Marshal(live)
	}
	if err == nil {
		_, err = l.peer.Call(ctx, callReload, body)
	}
	if err != nil {
		if !s.runner.ends() {
			if l.process.Worker().State == Stopping { // the process in its place has the configuration
				return nil
			}
			s.log.Error("configuration not reloaded by a worker", "worker", l.process.id, "pid", l.process.PID(), "error", err)
		}
		return unansweredError{fmt.Errorf("reload the configuration of worker %d, pid %d: %w", l.process.id, l.process.PID(), err)}
	}
	return nil
}

// unansweredError is the error of a worker that has not followed a request.
type unansweredError struct{ error }

// Code returns the code of a worker that does not answer.
func (unansweredError) Code() string { return "worker.unanswered" }
