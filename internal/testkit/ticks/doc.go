// Package ticks holds the tests of rule O1, one run per tick whatever the clocks,
// with processes whose wall clocks are hours apart. Only the processes' own clocks differ: they are built from
// sources in which time.Now returns a shifted time. The clock of the machine,
// and so the backend's, stays as it is.
package ticks
