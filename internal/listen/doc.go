// Package listen serves HTTP at the addresses of a program, and ends without
// losing a request.
//
//   - address.go: the apps that share a listen address, and which of them gets a
//     request
//   - rebinding.go: requests that a page of another site makes
//   - listener.go: a listener that stops without refusing the connections in its
//     queue
//   - server.go: a listener and its handler, from Serve to Drain
//   - conns.go: the connections of a server, and how a drain ends them
//   - conn.go: the state of one connection, and the deadlines by which net/http
//     closes it
//   - limiter.go: the limit on connections, so that descriptors do not run out
//   - spares.go: descriptors for a listener that answers even if they have
//
// A drain has this order: streams end; responses close their connections;
// the kernel refuses new connections, while those in the queue are accepted and
// served; connections without a request become due.
package listen
