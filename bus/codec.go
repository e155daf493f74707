package bus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// Codec turns values into data and back.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

const jsonType = "application/json"

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// codecs maps content types without parameters to the codecs of a Bus.
type codecs map[string]Codec

// find returns the codec for a Content-Type, which is JSON if it is empty. Its
// parameters are ignored.
func (cs codecs) find(contentType string) (Codec, error) {
	name, _, _ := strings.Cut(contentType, ";")
	name = cmp.Or(strings.TrimSpace(name), jsonType)
	if c, ok := cs[name]; ok {
		return c, nil
	}
	if name == jsonType {
		return jsonCodec{}, nil
	}
	return nil, fmt.Errorf("there is no codec for %q: add one to Config.Codecs", contentType)
}
