// Package listen serves HTTP at the addresses of a program, and ends without
// losing a request.
//
//   - address.go: the apps that share a listen address, and which of them gets a
//     request
//   - rebinding.go: requests that a page of another site makes
//   - listener.go: a listener that stops without refusing the connections in its
//     queue
//   - server.go: a listener and its handler, from Serve to Drain
//   - conns.go: the state of each connection
//   - room.go: the limit on connections, so that descriptors do not run out
package listen
