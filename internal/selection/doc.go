// Package selection selects the drivers of locks, messages and limits, and opens
// them.
// It alone names the backends; package workers names the cluster driver too,
// because the supervisor runs the hub.
//
// # Which driver
//
// [Decide] looks at the configuration, the requirements of the apps and whether
// the process is a worker. It opens nothing: a server that is down never
// changes a decision. The candidates are ordered by scope, the widest first:
//
//	locks      redis    fleet    a cache is configured
//	           cluster  node     the process is a worker or has workers, or cluster.socket is set
//	           memory   process  always
//	messages   nats     fleet    nats.url is set
//	           cluster  node     as for locks
//	           memory   process  always
//
// Limits have the driver of the locks, at the same server, unless limit.driver or
// limit.cache names another one.
//
// With lock.driver and bus.driver at auto, the first candidate that fits is
// chosen. Wider is safer: locks that exclude too few processes fail silently,
// locks that exclude too many only wait. A driver that lock.driver or bus.driver
// names is chosen even if it does not fit; then the decision is an error. So is
// a scope that is smaller than lock.require, bus.require or an app requires, and
// a driver that this build lacks. A decision is complete even if it is an error,
// so that a report can explain it.
//
// # Opening
//
// [Backends] opens the chosen drivers, and [OpenCache] opens the caches that the
// program uses itself. A server may start later than the program: wait.go
// retries until boot.wait_for is over. A permanent refusal is not retried: a
// configuration that is not valid, and a server that does not fit it (package
// refusal). There is no fallback to another driver.
//
//	select.go    the candidates, and the choice
//	limit.go     the same for limits, with their failures
//	refuse.go    the failures of a decision
//	open.go      the drivers, and the connection to the cluster
//	wait.go      the retries
//	server.go    the failures of a server: refused, or unavailable
//	redis.go, nats.go, cluster.go    what is special to one backend
package selection
