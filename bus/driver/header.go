package driver

import (
	"maps"
	"slices"
)

// Header is the metadata of a message: keys and, for each, its values in order.
// Keys are case-sensitive. It can be used as a carrier of trace contexts.
type Header map[string][]string

// Get returns the first value of key, or "".
func (h Header) Get(key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Values returns the values of key, in order.
func (h Header) Values(key string) []string { return h[key] }

// Set replaces the values of key with value.
func (h Header) Set(key, value string) { h[key] = []string{value} }

// Add appends value to the values of key.
func (h Header) Add(key, value string) { h[key] = append(h[key], value) }

// Keys returns the keys, sorted.
func (h Header) Keys() []string { return slices.Sorted(maps.Keys(h)) }
