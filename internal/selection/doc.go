// Package selection selects the drivers of locks and messages from the
// configuration, and opens them.
package selection
