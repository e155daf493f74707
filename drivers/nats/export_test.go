package nats

import "time"

// Hasty is c with another interval of PINGs, and another bound of an attempt to
// connect. A connection on which no byte moves ends after three intervals.
func Hasty(c Config, ping, dial time.Duration) Config {
	c.ping, c.dial, c.silence = ping, dial, 3*ping
	return c
}
