package nats

import "time"

// Hasty is c with another interval of pings, and another bound of an attempt to
// connect.
func Hasty(c Config, ping, dial time.Duration) Config {
	c.ping, c.dial = ping, dial
	return c
}

// OnShortcut says whether messages go straight to the connection.
func (b *Bus) OnShortcut() bool { return b.shortcut.pipe.Load() != nil }
