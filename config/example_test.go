package config_test

import (
	"context"
	"fmt"
	"io"

	"github.com/knadh/koanf/providers/confmap"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/config"
)

// A test of a deployment: what a program would be configured with.
func ExampleConfig() {
	plan, err := boot.Plan(boot.Process{
		Name:    "shop",
		Environ: []string{"MEGA_LOCK_TTL=30s", "MEGA_APPS_WEB_BODY_LIMIT=2MiB"},
	}, mega.App("web"))
	if err != nil {
		fmt.Println(err)
		return
	}
	c := plan.Config
	fmt.Println(c.Name, c.Lock.TTL, c.Lock.Wait, c.Apps["web"].BodyLimit)
	// Output: shop 30s 5s 2MiB
}

// A section of an application: its tags are checked, and its values are provided.
func Example_section() {
	type Mail struct {
		Server config.URL    `key:"server" default:"smtp://localhost:25" schemes:"smtp|smtps" doc:"where mail is delivered"`
		From   string        `key:"from" required:"true" doc:"the sender"`
		Token  config.Secret `key:"token" doc:"the password of the server"`
		Most   config.Size   `key:"most" default:"1MiB" max:"20MiB" doc:"the largest mail"`
	}
	running, err := boot.Start(context.Background(), boot.Process{
		Name: "shop", Stderr: io.Discard, Offline: &boot.Offline{},
		Environ: []string{"MEGA_MAIL_FROM=shop@example.org", "MEGA_MAIL_TOKEN=t0ken", "MEGA_MAIL_MOST=512KiB"},
	}, mega.Config[Mail]("mail"), mega.App("web", mega.OnStart("show", func(_ context.Context, m Mail) error {
		fmt.Println(m.Server, m.From, m.Token, m.Most)
		return nil
	})))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(running.Stop())
	// Output:
	// smtp://localhost:25 shop@example.org *** 512KiB
	// <nil>
}

// A layer between the files and the environment, from a provider of koanf.
func ExampleProvider() {
	var remote config.Provider = confmap.Provider(map[string]any{"lock": map[string]any{"ttl": "20s", "wait": "1s"}}, "")
	plan, err := boot.Plan(boot.Process{
		Name:    "shop",
		Environ: []string{"MEGA_LOCK_WAIT=2s"},
	}, mega.ConfigFrom("remote", remote, nil), mega.App("web"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Config.Lock.TTL, plan.Config.Lock.Wait)
	// Output: 20s 2s
}

// A URL and a secret show themselves in full only to Reveal.
func ExampleURL() {
	var u config.URL
	if err := u.UnmarshalText([]byte("postgres://shop:hunter2@db.example.org/shop")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(u.Scheme(), u)
	fmt.Println(u.Reveal())
	// Output:
	// postgres postgres://***@db.example.org/shop
	// postgres://shop:hunter2@db.example.org/shop
}

// A size without its unit is an error.
func ExampleSize() {
	var s config.Size
	fmt.Println(s.UnmarshalText([]byte("1.5MiB")), int64(s), s)
	fmt.Println(s.UnmarshalText([]byte("1500")))
	// Output:
	// <nil> 1572864 1536KiB
	// "1500" has no unit
}
