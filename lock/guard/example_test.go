package guard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

// A service accepts writes of the current holder only.
func Example() {
	service := httptest.NewServer(guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "saved")
	}), new(guard.Memory)))
	defer service.Close()

	locker, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer locker.Close(ctx)
	client := &http.Client{Transport: guard.Transport(nil)}

	err = locker.With(ctx, "account:7", func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, service.URL, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		fmt.Println(answer.StatusCode, string(body))
		return err
	})
	fmt.Println(err)

	_, err = client.Post(service.URL, "text/plain", nil) // without a lease
	fmt.Println(err != nil)
	// Output:
	// 200 saved
	// <nil>
	// true
}
