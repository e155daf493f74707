package request

import (
	"testing"
	"testing/fstest"
)

// In env dev, each change of a file makes all views anew.
func TestPagesOfChangedFilesAreForgotten(t *testing.T) {
	read := func() *Files {
		v, err := ParseViews(fstest.MapFS{"home.html": {Data: []byte("hello")}})
		if err != nil {
			t.Fatal(err)
		}
		return &Files{Views: v}
	}
	h := &Host{Refresh: func() (*Files, error) { return read(), nil }}
	for range 3 {
		if err := h.refresh(); err != nil {
			t.Fatal(err)
		}
		for _, locale := range []string{"en", "ko"} {
			if _, err := h.Render(locale, "home", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(h.pages.made); n != 2 {
		t.Errorf("%d pages are kept, want one for each locale", n)
	}
}

func TestUnknownViewOfAnAppWithoutViewsNamesTheOption(t *testing.T) {
	const want = "there is no such view: the app has none; add its folder with mega.Views"
	for _, v := range []*Views{nil, {}} {
		if err := v.Check("home"); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
