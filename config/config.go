// Package config has the configuration of a process as structs, and the types of
// its values. The tags of the structs are the schema: they define the keys, the
// variable of each key (lock.redis.key is MEGA_LOCK_REDIS_KEY), the defaults, the
// legal values and the documentation. The framework loads a Config at the start,
// checks it against the schema, and keeps the origin of each value.
//
// An application seldom imports this package: package mega has the types for its
// sections. A test of a deployment reads the Config of [boot.Plan].
//
// Loading is strict and complete: an unknown key, a number without its unit, an
// empty section and a malformed URL are errors. Each error names the line of its
// file, and the start reports all of them at once.
//
// # Layers
//
// A key has the value of the strongest layer that sets it:
//
//	--set key=value
//	MEGA_* variables
//	.env                        in env dev and test
//	mega.ConfigFrom             sources of the program
//	apps/<name>/app.config.*    keys of apps.<name>
//	mega.config.<env>.*
//	mega.config.*
//	defaults
//
// Sections merge key by key, lists replace each other.
//
// # Sections of an application
//
// An application adds its own structs to the schema with mega.Config. Their
// fields have the tags
//
//	key        the last part of the key, a lower-case word with underscores
//	default    the value if nothing sets it
//	doc        a description
//	enum       the legal values, with | between them
//	min, max   bounds of a number, a duration or a [Size]
//	schemes    the legal schemes of a [URL], with | between them
//	pattern    what a text, or each text of a list, has to match
//	like       an example of pattern, for the error of a text that does not match
//	required   "true": it must have a value that is not empty
//
// and one of the types string, bool, number, [time.Duration], list of strings,
// [Size], [Addr], [URL], [Secret], another encoding.TextUnmarshaler, or a
// struct of such fields.
//
// # Files
//
//	config.go     Config and Change
//	keys.go       the sections of Config, with the tags
//	value.go      Size, Addr, URL and Secret
//	provider.go   the interfaces of mega.ConfigFrom
//
// Package internal/settings loads a Config.
//
// [boot.Plan]: https://pkg.go.dev/github.com/megaframework/mega/boot#Plan
package config

// Config is the configuration of a process. A field without a value has its
// default.
type Config struct {
	Env      string           `key:"env" file:"no" pattern:"^[a-z][a-z0-9_-]*$" like:"staging" doc:"dev, test, production or a name of your own; not in files, as it decides which of them are read"`
	Name     string           `key:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" like:"shop" doc:"the name of the program; default the name of its executable"`
	Lock     Lock             `key:"lock"`
	Limit    Limit            `key:"limit"`
	Bus      Bus              `key:"bus"`
	NATS     NATS             `key:"nats"`
	Cache    map[string]Cache `key:"cache"`
	Cluster  Cluster          `key:"cluster"`
	Apps     map[string]App   `key:"apps"`
	Ops      Ops              `key:"ops"`
	Boot     Boot             `key:"boot"`
	Shutdown Shutdown         `key:"shutdown"`
	Log      Log              `key:"log"`
}

// Change describes a key whose value has changed while the program runs.
type Change struct {
	Key    string `json:"key"`
	Old    string `json:"old"` // masked, as New is; empty without a value
	New    string `json:"new"`
	Origin string `json:"origin"` // of the new value: "mega.config.yaml:8"
	Live   bool   `json:"live"`   // in effect; otherwise it requires a restart
}
