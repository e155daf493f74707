package cluster

// SocketError is the error if processes cannot connect at a path, and a retry
// does not help.
type SocketError struct{ Err error }

func (e *SocketError) Error() string { return e.Err.Error() }

func (e *SocketError) Unwrap() error { return e.Err }
