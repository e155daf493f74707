module github.com/megaframework/mega/bench

go 1.26.0

replace github.com/megaframework/mega => ..

require (
	github.com/bsm/redislock v0.9.4
	github.com/megaframework/mega v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	golang.org/x/sync v0.24.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
