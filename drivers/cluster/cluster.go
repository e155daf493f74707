// Package cluster shares locks and messages between the processes of one node.
//
// One of them is the hub, which keeps the table of locks and routes the
// messages. The others are its clients, each on one connection. If a process
// ends, for whatever reason, its leases and its requests end within
// milliseconds, because its connection ends with it.
//
// There are two ways to connect. Workers inherit a connection from the process
// that started them, which is the hub: this needs no path and no port.
// Unrelated processes of one user connect to a Unix socket. There, the first
// process becomes the hub, and another one takes over when that hub ends.
//
//	node, err := cluster.Dial(ctx, cluster.Config{Socket: "/run/user/1000/mega/cluster.sock"})
//	l, err := lock.New(node.Lock(), lock.Config{})
//	b, err := bus.New(node.Bus(), bus.Config{})
//
// # Messages
//
// A process puts an event straight into the queues of its own subscriptions
// without a group. The hub receives the event once, and sends it once to each
// other process that subscribes to it. Messages for a group, and all requests,
// go through the hub. For these the hub draws a process, weighted by the number
// of its members in the group, and passes over processes with a longer backlog.
// A process whose members have just been stopped gives such a message back. The
// message may then arrive after later ones.
//
// Messages that a process does not read wait in the hub, up to
// [HubConfig].Backlog. The hub drops further messages, and reports their number
// to the process for each subscription, at the position of the loss. Messages
// that the hub does not read wait in the process, up to [Config].Buffer.
//
// A hub that shuts down in order takes no new messages, delivers its queued
// ones, and ends; the messages of its clients wait for the next hub. A hub that
// dies loses its queued messages and those on their way to it. Each
// subscription then gets a gap of unknown size, and each publisher counts the
// messages that the hub had not confirmed.
package cluster

// PlaceError is the error if processes cannot connect at a path, and a retry
// does not help.
type PlaceError struct{ Err error }

func (e *PlaceError) Error() string { return e.Err.Error() }

func (e *PlaceError) Unwrap() error { return e.Err }
