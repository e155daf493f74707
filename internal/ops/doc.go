// Package ops serves the probes, the metrics and the views of a process to its
// operators. It changes nothing, except by the actions of the console.
//
//   - probes.go: whether the process lives, has started and is ready
//   - pages.go: the listener of ops.addr and its pages
//   - supervisor.go, supervisorprobes.go: the same for a program with several workers
//   - guard.go: which requests it answers
//   - build.go: the version of the executable
package ops
