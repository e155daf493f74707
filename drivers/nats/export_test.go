package nats

// OnShortcut says whether messages go straight to the connection.
func (b *Bus) OnShortcut() bool { return b.shortcut.pipe.Load() != nil }
