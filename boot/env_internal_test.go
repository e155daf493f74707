package boot

import "testing"

func TestEnvironmentIsThatOfWhoStartedTheProgram(t *testing.T) {
	const hash = "b1aecdf3ec2363c2a5f69713aa8263fca6561798dcc09c23f49a1e735e0a72a3"
	for exe, want := range map[string]string{
		"T/go-build2917444340/b001/exe/shop":       "dev",
		"H/.cache/go-build/b1/" + hash + "-d/shop": "dev", // run again, unchanged
		"C:/cache/b1/" + hash + "-d/shop.exe":      "dev",
		"T/go-build123/b001/shop.test":             "test",
		"C:/T/go-build123/b001/shop.test.exe":      "test",
		"/usr/local/bin/shop":                      "production",
		"H/go-builds/shop":                         "production",
		"H/exe/shop":                               "production",
		"/srv/b1/" + hash + "/shop":                "production",
	} {
		if got := envOf(exe); got != want {
			t.Errorf("%s: got %s, want %s", exe, got, want)
		}
	}
}
