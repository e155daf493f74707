package config

import "github.com/knadh/koanf/v2"

// Provider and Parser are koanf's interfaces, so that any koanf provider can be
// a layer of the configuration. A Parser is nil for a Provider that returns a
// map.
type (
	Provider = koanf.Provider
	Parser   = koanf.Parser
)
