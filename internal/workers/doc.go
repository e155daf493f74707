// Package workers runs a program as several processes: serve --workers N. The
// parent process is the supervisor; its children, the workers, run the apps.
//
// The supervisor opens the listeners, starts the workers from its own
// executable, and passes the listeners to them. It replaces workers that die,
// restarts them one after the other without a gap, and ends them when it ends.
// Each worker also inherits a connection to the supervisor, its line. The line
// carries locks and messages, since the supervisor has the hub of the driver
// cluster, and calls in both directions. A worker whose line ends has lost its
// supervisor, and ends.
//
// # Map
//
//	supervisor.go  Supervisor: the workers with their lines, and their calls
//	signals.go     SIGUSR2 (restart), SIGHUP (reload), received by internal/cli
//	reload.go      reload of the configuration in all workers
//	inputs.go      the configuration files of each generation of workers
//	check.go       readiness of all workers
//	hang.go        kill of workers that do not answer
//	calls.go       names and bodies of the calls
//	line.go        Line: the worker's end
//
//	runner.go      runner: processes without their protocol
//	slot.go        one worker: start, back-off, replacement
//	restart.go     restart of all workers, or of one
//	process.go     one process: start, stop, kill, wait
//	turns.go       OnPrimary functions, which one worker of a generation runs
//	inherit.go     environment variables and descriptors of a worker
//
//	taken.go       wait for an address that the workers of a dead supervisor have
//	holder_*.go    search for the worker that has an address
//	reap_*.go      exit statuses of orphans, for the first process of a container
//
// # SIGUSR2, step by step
//
//  1. Supervisor.handleSignals notes the request. A request during a restart
//     starts another restart afterwards.
//  2. runner.roll begins a new generation, and sends a replacement to each slot,
//     one after the other.
//  3. slot.keep starts a process of the new generation beside the old one. Both
//     accept from the same listeners. The first process of the generation reads
//     the configuration; the others get a copy from the supervisor.
//  4. The new process calls ready on its line. If it dies five times before
//     that, or once with an exit status that a retry does not change, it is given
//     up, the old process continues, and the restart ends with an error.
//  5. slot.keep sends SIGTERM to the old process, which stops accepting without
//     refusing a connection, finishes its work and exits. It is killed after its
//     grace period.
//  6. When the old process has ended, the next slot gets its replacement.
package workers
