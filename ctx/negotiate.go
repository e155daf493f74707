package megactx

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// wantsJSON reports whether the answer should be JSON: the request's body is
// JSON, or its Accept header prefers JSON to HTML.
func wantsJSON(r *http.Request) bool {
	if isJSON(mediaType(r.Header.Get("Content-Type"))) {
		return true
	}
	var json, page float64
	for _, header := range r.Header.Values("Accept") {
		for item := range strings.SplitSeq(header, ",") {
			t, q := weighted(item)
			switch {
			case isJSON(t):
				json = max(json, q)
			case t == "text/html" || t == "application/xhtml+xml":
				page = max(page, q)
			}
		}
	}
	return json > 0 && json >= page
}

func isJSON(mediaType string) bool {
	return mediaType == "application/json" || strings.HasPrefix(mediaType, "application/") && strings.HasSuffix(mediaType, "+json")
}

// mediaType returns the bare type in lower case, or "" if there is none.
func mediaType(header string) string {
	t, _, err := mime.ParseMediaType(header)
	if err != nil {
		return ""
	}
	return t
}

// weighted splits one item of an Accept header into its type and weight.
func weighted(item string) (string, float64) {
	t, params, err := mime.ParseMediaType(item)
	if err != nil {
		return "", 0
	}
	q, err := strconv.ParseFloat(params["q"], 64)
	if err != nil {
		q = 1
	}
	return t, q
}
