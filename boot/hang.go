package boot

import (
	"context"
	"time"
)

// A worker that hangs keeps its connections and locks, and its share of the
// listeners' queue. The supervisor asks each worker for a sign of life, and kills
// and replaces one that does not answer for cluster.hang_timeout.

// signs is how many signs of life a worker is asked for within
// cluster.hang_timeout.
const signs = 10

// watchWorker kills the worker when it does not answer for limit. It returns when
// the line ends.
//
// It counts ticks rather than time: a ticker drops the ticks of a time in which
// this process, or the machine, stood still, so that a worker is not killed for an
// answer that its supervisor did not read.
func (m *member) watchWorker(limit time.Duration) {
	tick := time.NewTicker(limit / signs)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var answered <-chan struct{} = m.spoke // a call before the worker has joined would break the line
	for silent := 0; ; {
		select {
		case <-m.peer.Done():
			return
		case <-answered:
			silent, answered = 0, nil
		case <-tick.C:
			if answered == nil {
				answered = m.askAlive(ctx)
				continue
			}
			if silent++; silent == signs {
				m.process.Hung(limit)
			}
		}
	}
}

// askAlive returns a channel that is closed when the worker answers, whatever it
// says, or when ctx or the line ends. Its goroutine ends then.
func (m *member) askAlive(ctx context.Context) <-chan struct{} {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = m.peer.Call(ctx, callAlive, nil)
	}()
	return answered
}
