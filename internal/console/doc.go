// Package console shows a running program to people: pages in a browser, below
// /console of the ops listener.
//
// The console is a client of the pages of the ops listener, /readyz and /ops/*,
// which it calls inside the process. So it shows nothing that they do not
// serve, and one implementation shows a single process and a supervisor with
// its workers: there ?worker= names the worker that answers.
//
//   - console.go: New, the paths, and the headers of each response
//   - client.go: the calls of the pages
//   - page.go: the pages, and their templates in web
//   - overview.go, boot.go, locks.go, limits.go, …: the content of each page
//   - stream.go: changes of a page while it is open
//   - history.go, plot.go: the last minutes, as plots
//
// A page is complete without JavaScript. web/console.js, the only script,
// replaces the live part of an open page by the one that the stream sends.
package console
