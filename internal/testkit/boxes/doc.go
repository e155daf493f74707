// Package boxes has numbered boxes for tests of pools: folders in which each
// holder starts a resident, a process that outlives it. Init starts a resident,
// and only an empty box can have one; Cleanup ends the resident and empties the
// box.
//
// Every step is a line of a log that the holders of all processes share. [Judge]
// checks the log afterwards, and [Storm] kills holders while they are in each of
// the steps. A test of a driver calls [Storm.Run]; each child process that it
// starts calls [Orders.Serve].
package boxes
