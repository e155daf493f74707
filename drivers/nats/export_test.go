package nats

import "time"

// Hasty is c with another interval of PINGs, and another bound of an attempt to
// connect. A connection on which no byte moves ends after three intervals.
func Hasty(c Config, ping, dial time.Duration) Config {
	c.ping, c.dial, c.silence = ping, dial, 3*ping
	return c
}

// Cramped is c with another bound, in bytes, of the messages that wait in the
// client for one subscription.
func Cramped(c Config, backlog int) Config {
	c.backlog = backlog
	return c
}
