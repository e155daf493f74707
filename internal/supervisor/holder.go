package supervisor

// Holder is a worker of this program that has an address.
type Holder struct {
	PID    int
	Worker int // its number
	Parent int // its supervisor, or 0 for a worker that has lost its supervisor and is ending
}
