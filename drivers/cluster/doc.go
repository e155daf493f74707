// Package cluster shares locks, messages and limits between the processes of one
// node.
//
// One of them is the hub, which keeps the tables of locks and limits and routes
// the messages. The others are its clients, each on one connection. If a process
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
//	m, err := limit.New(node.Limits(""), limit.Config{Locker: l})
//
// # Connections
//
//	process A (client)                    process H (hub and client)
//	  Node                                  Node ──┐ a connection to itself
//	   ├ Lock: claims                              │
//	   ├ Bus:  subscriptions, outbox        Hub ◄──┘
//	   └ session ◄────── one connection ─────► Client
//	                     (frames)            ├ table of locks
//	                                         └ routes of messages
//
// Clients have no connections among themselves. At a socket, [Dial] finds the
// hub or makes one, and the process of the hub is a client like all others. With
// inherited connections, the process that starts the workers calls [NewHub],
// [Pair] and the hub's Join; each worker calls [Inherited] and Dial.
//
// The code has four parts:
//
//	drivers/cluster       the client: Node, and its lock and bus drivers
//	internal/hub          the hub, and its change at a socket: Host, Successor
//	internal/protocol     connections (Line), frames, the clock of the node
//	internal/rendezvous   the files at a socket, which show the hub and the living clients
//
// Of the client, node.go finds a hub and the next one, and session.go is the
// connection to it; lock.go, acquire.go and claim.go are the locks, bus.go,
// outbox.go, pump.go and inbox.go the messages; limit.go is the limits.
//
// # Goroutines
//
// Each side of a connection has two goroutines: a reader, which handles the
// frames, and a writer, which writes frames that a caller could not write at once. A
// reader never waits for the other side or for a front. A call by name is the
// only frame that gets a goroutine of its own.
//
// While a process asks the hub one question after the other, and the hub sends
// nothing else, the caller reads its answer itself, and the reader of the Node
// waits for other frames without reading (Line.Lead). This saves two switches of
// goroutines per question, and the thread that the runtime would wake.
//
// In a Node, the reader of a connection that has ended looks for the next hub,
// and the outbox has a pump while messages wait. In a hub, each client whose
// backlog is full has a goroutine that waits for room. At a socket, the hub has
// one goroutine that accepts and one that maintains the files.
//
// # Order of mutexes
//
// A goroutine that holds a mutex takes only those to the right of it:
//
//	both     Line.turn → all mutexes below
//	client   Bus.calls → Bus.mu → Line.mu
//	         Lock.mu → Line.mu
//	         outbox.mu → Line.mu
//	         presence.mu → mutexes of package rendezvous
//	hub      Client.bus.mu → sharedRequest.mu
//	         Client.bus.mu → Line.mu
//	         Hub.mu → Line.mu
//	         hubLimits.mu → Hub.mu, Line.mu, and the mutexes of the windows
//
// Every other mutex, such as Node.mu and the table's, is held alone: the table
// reports its events after it has released its mutex. No mutex is held while a front is
// called, except Bus.calls, for reading: Bus.Close takes it to wait for these
// calls.
//
// # When another process becomes the hub
//
// This happens at a socket only: a worker ends with its supervisor. Two kinds of
// files beside the socket take part: the lock file, whose flock the hub has, and
// a file for each client, with a flock of the client.
//
//  1. The hub ends. In order, it sends TypeLeaving, whereupon the clients keep
//     their messages, and delivers the messages that it has (S21). Then it sends
//     TypeWhole. Otherwise these messages are lost. The kernel releases the flock
//     either way.
//  2. Each client sees the end of its connection. It keeps its requests for the
//     next hub, reports the disconnection to the front of the bus, and counts the
//     events that the hub had not confirmed (S28). Its leases go on.
//  3. Each client tries to take the flock. One succeeds and becomes the hub; the
//     others connect when it listens.
//  4. The new hub reads the record in the lock file: the latest expiry and the
//     highest fence of all leases. It continues above that fence (L2). It lists
//     the clients' files: the client lives if the flock is taken. It grants no
//     lease yet.
//  5. Each client sends hello, with the name and the nonce of its file, and
//     reports: its subscriptions to the hub, a gap of unknown size to each of
//     these (unless TypeWhole came from the hub before this one, which is recorded
//     in the lock file, and this hub is not open yet), then its leases (LockHeld), its queued requests with the times
//     of their first request (LockAsk with number 0), and LockReported. Its copy
//     of the limits follows in parts (LimitRecord), while its leases are renewed.
//  6. When all living clients have reported, or after 500 ms, the hub sends
//     TypeOpen: messages find their subscribers, and the outboxes send theirs. A
//     client that has not reported gets TypeAbsent first, and reports the gap.
//  7. When all have reported, or when no unreported lease can be valid any more
//     (L1), the hub opens the table: the heads of the queues get their leases.
//     This takes milliseconds unless a client is stopped.
//
// # Limits
//
// A limit is a call of the hub by name, with JSON, which the hub decides at once:
// a request that waits is asked again by its process. At a socket, the hub sends
// every decision to all clients before it answers (LimitNews), and each client
// keeps a copy of the windows. The next hub adds the copies up, so a grant counts
// as long as any process of that time lives. It decides about a key when all clients
// have reported this key: it asks them for the key of a call (LimitWanted), so that
// a decision does not wait for the other keys of a long report. List, Pause and
// Reset wait for the whole of it. It sends each client only what it lacks. A record
// has the time of the last Reset of its key, so that a client that was stopped
// meanwhile does not undo the Reset. The queue is asked for anew.
//
// # Messages
//
// A process puts an event straight into the queues of its own subscriptions
// without a group. The hub receives the event once, and sends it once to each
// other process that subscribes to it. Messages for a group, and all requests,
// go through the hub. For these the hub draws a process, weighted by the number
// of its subscriptions in the group, and passes over processes with a longer
// backlog. A process whose subscriptions have just been stopped gives such a
// message back. The message may then arrive after later ones.
//
// Messages that a process does not read wait in the hub, up to
// [HubConfig].Backlog. The hub drops further messages, and reports their number
// to the process for each subscription, at the position of the loss. Messages
// that the hub does not read wait in the process, up to [Config].Buffer.
//
// A hub that shuts down in order takes no new messages, delivers its queued
// ones, and ends; the messages of its clients wait for the next hub, and there is
// no gap. A hub that dies loses its queued messages and those on their way to it.
// Each subscription then gets a gap of unknown size, and each publisher counts the
// messages that the hub had not confirmed.
package cluster
