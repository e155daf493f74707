// Package guide is the guide's code: its tests run every piece of Go that the
// pages beside it show.
package guide
