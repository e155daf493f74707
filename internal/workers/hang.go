package workers

import (
	"context"
	"time"
)

// A worker that hangs keeps its connections, its locks and its share of the
// listeners' queue. The supervisor pings each worker. It kills and replaces a
// worker that does not answer for cluster.hang_timeout.

// maxPings is the number of pings within cluster.hang_timeout.
const maxPings = 10

// detectHang kills the worker when it does not answer for limit. It returns
// when the line ends.
//
// detectHang counts ticks rather than time. A ticker drops the ticks of a
// period in which this process or the machine was suspended. As a result, a
// worker is not killed for an answer that its supervisor did not read.
func (l *workerLine) detectHang(limit time.Duration) {
	tick := time.NewTicker(limit / maxPings)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var answered <-chan struct{} = l.spoke // a call before the worker has joined would break the line
	for silent := 0; ; {
		select {
		case <-l.peer.Done():
			return
		case <-answered:
			silent, answered = 0, nil
		case <-tick.C:
			if answered == nil {
				answered = l.askAlive(ctx)
				continue
			}
			if silent++; silent == maxPings {
				l.process.Hung(limit)
			}
		}
	}
}

// askAlive pings the worker. The returned channel is closed when the worker
// answers, even with an error, or when ctx or the line ends. The goroutine of
// askAlive ends at that time.
func (l *workerLine) askAlive(ctx context.Context) <-chan struct{} {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = l.peer.Call(ctx, callAlive, nil)
	}()
	return answered
}
