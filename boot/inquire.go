package boot

import "github.com/megaframework/mega/config"

// ConfigSchema returns the JSON Schema of the configuration files of the
// program that options describe.
func ConfigSchema(p Process, options ...Option) ([]byte, error) {
	program, err := p.program(options)
	if err != nil {
		return nil, err
	}
	schema, err := config.JSONSchema(p.source(program))
	if err != nil {
		return nil, failureOf(err)
	}
	return schema, nil
}
