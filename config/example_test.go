package config_test

import (
	"fmt"
	"reflect"

	"github.com/megaframework/mega/config"
)

func ExampleLoad() {
	type Mail struct {
		Host string `key:"host" default:"localhost" doc:"where mail is handed in"`
		Port int    `key:"port" default:"25" min:"1" max:"65535"`
	}
	c, err := config.Load(config.Source{
		Environ:  []string{"MEGA_LOCK_TTL=30s", "MEGA_MAIL_PORT=2525"},
		Set:      []string{"mail.host=mail.example.org"},
		Sections: []config.Section{{Name: "mail", Type: reflect.TypeFor[Mail]()}},
	})
	if err != nil {
		panic(err)
	}
	mail, _ := c.Section("", "mail")
	fmt.Printf("%+v\n", mail)
	fmt.Println(c.Lock.TTL, "from", c.Origin("lock.ttl"))
	fmt.Println(c.Lock.Wait, "from", c.Origin("lock.wait"))
	// Output:
	// {Host:mail.example.org Port:2525}
	// 30s from env MEGA_LOCK_TTL
	// 5s from default
}

func ExampleProblems() {
	_, err := config.Load(config.Source{
		Environ: []string{"MEGA_LOK_TTL=5s", "MEGA_LOCK_WAIT=5"},
		Set:     []string{"nats.token=t0ken"},
	})
	fmt.Println(err)
	// Output:
	// MEGA_LOCK_WAIT: "5" has no unit (write 5s or 5ms)
	// MEGA_LOK_TTL: no key has this variable (did you mean MEGA_LOCK_TTL?)
	// --set nats.token: all users of this machine can read a secret on a command line (set MEGA_NATS_TOKEN, or the key in a file)
}
