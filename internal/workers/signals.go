package workers

import (
	"context"
	"sync"
)

// handleSignals handles the signals for restarts (SIGUSR2) and reloads (SIGHUP)
// until over is closed. SIGTERM and SIGINT end ctx.
func (s *Supervisor) handleSignals(ctx context.Context, stop func(), over <-chan struct{}) {
	wanted := make(chan struct{}, 1)
	var restarting sync.WaitGroup
	defer restarting.Wait()
	restarting.Go(func() { s.restartWhenWanted(ctx, wanted, over) })
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			s.log.Info("stopping")
			s.manager.Stopping()
			<-over
			return
		case <-s.config.Restarts:
			select {
			case wanted <- struct{}{}:
			default: // a pending restart will use the latest state
			}
		case <-s.config.Hangups:
			if s.config.EndAtHangup {
				s.log.Info("terminal closed")
				stop()
				continue
			}
			s.log.Info("configuration reload requested")
			_, _ = s.Reload(ctx) // Reload logs its errors
		}
	}
}

// restartWhenWanted restarts the workers at each request until over is closed.
// A request that arrives during a restart is served afterwards, since that
// restart may have replaced some workers from the earlier state.
func (s *Supervisor) restartWhenWanted(ctx context.Context, wanted, over <-chan struct{}) {
	for {
		select {
		case <-wanted:
		case <-ctx.Done():
			return
		case <-over:
			return
		}
		if err := s.runner.RestartNext(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("worker restart failed", "error", err)
		}
	}
}
