// A program of net/http that says hello: the floor of one that serves HTTP.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })
	log.Fatal(http.ListenAndServe(os.Getenv("MEGA_APPS_MAIN_ADDR"), nil))
}
