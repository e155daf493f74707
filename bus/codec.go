package bus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// Codec turns values into data and back. Its methods are called from several
// goroutines at once.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

const jsonType = "application/json"

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// codecs maps content types, in lower case and without parameters, to the codecs of
// a Bus.
type codecs map[string]Codec

func newCodecs(byType map[string]Codec) codecs {
	cs := make(codecs, len(byType))
	for name, c := range byType {
		cs[strings.ToLower(name)] = c
	}
	return cs
}

// find returns the codec for a Content-Type, which is JSON if it is empty. Its
// parameters and its case are ignored (RFC 9110, section 8.3.1).
func (cs codecs) find(contentType string) (Codec, error) {
	name, _, _ := strings.Cut(contentType, ";")
	name = cmp.Or(strings.ToLower(strings.TrimSpace(name)), jsonType)
	if c, ok := cs[name]; ok {
		return c, nil
	}
	if name == jsonType {
		return jsonCodec{}, nil
	}
	return nil, fmt.Errorf("there is no codec for the Content-Type %q in bus.Config.Codecs", contentType)
}
