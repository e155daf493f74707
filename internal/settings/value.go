package settings

import (
	"cmp"
	"reflect"
	"strconv"
	"strings"

	"github.com/megaframework/mega/internal/mask"
)

// Value is the text of a key and its origin.
type Value struct {
	Key    string `json:"key"`
	Text   string `json:"value"` // a list with commas between its items
	Origin Origin `json:"origin"`
	// Shadows are the origins of the weaker layers that also set the key, the
	// nearest first, without the default.
	Shadows []Origin `json:"shadows,omitempty"`

	list        []string      // of a list
	parsed      reflect.Value // a legal value, of the type of its key
	secret, url bool
}

// masked returns the value with its secrets masked.
func (v Value) masked() Value {
	var items []string
	for _, item := range v.list {
		items = append(items, mask.Text(item))
	}
	if items != nil {
		v.Text = strings.Join(items, ",")
	}
	v.list, v.parsed = nil, reflect.Value{} // they are not masked
	switch {
	case v.secret && v.Text != "":
		v.Text = mask.Mark
	case v.url:
		v.Text = mask.URL(v.Text)
	default: // a text key may also hold a URL with a password, and a list a password with a comma
		v.Text = mask.Text(v.Text)
	}
	return v
}

// The layers that an Origin names, from the weakest to the strongest.
const (
	LayerDefault  = "default"
	LayerFile     = "file"     // mega.config.* and app.config.*
	LayerProvider = "provider" // a Layer that the program adds
	LayerDotEnv   = "dotenv"   // .env
	LayerEnv      = "env"
	LayerSet      = "set" // --set key=value
	// LayerCommand is a flag of its own, such as --config and --workers.
	LayerCommand = "command"
)

// Origin is the source of a value. The zero Origin means that nothing set it.
type Origin struct {
	Layer string
	Name  string // the variable, the provider, or the argument of --set; in LayerDefault the reason for an unusual default
	File  string
	Line  int
}

// String returns "default", "mega.config.yaml:8", ".env:2 MEGA_LOCK_TTL",
// "env MEGA_LOCK_TTL" or "--set lock.ttl".
func (o Origin) String() string {
	switch o.Layer {
	case LayerFile:
		return o.place()
	case LayerProvider:
		return o.Name
	case LayerDotEnv:
		return strings.TrimSpace(o.place() + " " + o.Name)
	case LayerEnv:
		return "env " + o.Name
	case LayerSet:
		return "--set " + o.Name
	case LayerCommand:
		return o.Name
	case LayerDefault:
		return strings.TrimSpace("default " + o.Name)
	}
	return "not set"
}

// MarshalText returns what String does.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

func (o Origin) place() string {
	if o.Line == 0 {
		return o.File
	}
	return o.File + ":" + strconv.Itoa(o.Line)
}

// IsDefault reports whether the value is a default.
func (o Origin) IsDefault() bool { return o.Layer == "" || o.Layer == LayerDefault }

// compare orders origins by file and line, then by name.
func (o Origin) compare(other Origin) int {
	return cmp.Or(strings.Compare(o.File, other.File), cmp.Compare(o.Line, other.Line), strings.Compare(o.Name, other.Name))
}
