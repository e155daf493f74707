// Package ticks holds the tests of rule O1, one run per tick whatever the clocks,
// with processes whose wall clocks are hours apart.
package ticks
