package workers

// Holder is a worker of this program that listens on an address.
type Holder struct {
	PID    int
	Worker int // the worker's number
	Parent int // the supervisor's process id, or 0 for a worker that has lost its supervisor and is ending
}
