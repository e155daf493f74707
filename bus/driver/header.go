package driver

import (
	"maps"
	"slices"
)

// Header is what travels beside the data: keys and, for each, its values in
// order. Case counts. It can be used as a carrier of trace contexts.
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

// Set replaces the values of key by one.
func (h Header) Set(key, value string) { h[key] = []string{value} }

// Add appends a value of key.
func (h Header) Add(key, value string) { h[key] = append(h[key], value) }

// Keys returns the keys, sorted.
func (h Header) Keys() []string { return slices.Sorted(maps.Keys(h)) }
