package config

import "time"

// Lock configures the locks of the process.
type Lock struct {
	Driver    string        `key:"driver" default:"auto" enum:"auto|redis|cluster|memory" doc:"what keeps the locks"`
	TTL       time.Duration `key:"ttl" default:"10s" min:"100ms" max:"24h" doc:"how long others wait after a crash"`
	Wait      time.Duration `key:"wait" default:"5s" min:"0s" doc:"how long a call waits for a busy lock"`
	FIFO      bool          `key:"fifo" default:"false" doc:"strict order across processes"`
	Namespace string        `key:"namespace" pattern:"^[A-Za-z0-9._-]{1,64}$" like:"staging" doc:"part of the names of all locks, to separate environments on one redis or cluster socket"`
	Cache     string        `key:"cache" doc:"the alias of the cache that keeps the locks, where there are several"`
	Require   string        `key:"require" enum:"process|node|fleet" doc:"how far exclusion has to reach, or the program does not start"`
	Redis     LockRedis     `key:"redis"`
}

// LockRedis configures the redis driver of locks.
type LockRedis struct {
	Engine string `key:"engine" default:"queue" enum:"queue|redislock" doc:"how locks are kept in redis"`
	Key    string `key:"key" default:"mega:{%s}" doc:"template of the names in redis; %s is the lock's key"`
}

// Bus configures the message bus of the process.
type Bus struct {
	Driver  string  `key:"driver" default:"auto" enum:"auto|nats|cluster|memory" doc:"what carries the messages"`
	Require string  `key:"require" enum:"process|node|fleet" doc:"how far messages have to reach, or the program does not start"`
	NATS    BusNATS `key:"nats"`
}

// BusNATS configures the subject names of the bus on NATS.
type BusNATS struct {
	Prefix        string `key:"prefix" pattern:"^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$" like:"shop or shop.eu" doc:"stands before the subjects of both events and requests"`
	EventPrefix   string `key:"event_prefix" default:"ev" pattern:"^([A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*)?$" like:"ev" doc:"stands before the subjects of events; empty for subjects as they are"`
	RequestPrefix string `key:"request_prefix" default:"rpc" pattern:"^([A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*)?$" like:"rpc" doc:"stands before the subjects of requests; empty for subjects as they are"`
	InboxPrefix   string `key:"inbox_prefix" pattern:"^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$" like:"_INBOX_shop" doc:"the first part of the subjects of answers, in the place of _INBOX: a permission for it keeps them private"`
}

// NATS configures the process's NATS server.
type NATS struct {
	URL       URL     `key:"url" schemes:"nats|tls" doc:"where it is; several servers with commas between them"`
	User      string  `key:"user" doc:"who we are"`
	Password  Secret  `key:"password" doc:"the password of nats.user"`
	Token     Secret  `key:"token" doc:"a token, in the place of a user"`
	NKeyFile  string  `key:"nkey_file" doc:"a file with an NKey seed, in the place of a user"`
	CredsFile string  `key:"creds_file" doc:"a file with a JWT and its seed, in the place of a user"`
	TLS       NATSTLS `key:"tls"`
}

// NATSTLS configures TLS to NATS.
type NATSTLS struct {
	CA   string `key:"ca" doc:"a file with the authorities that are trusted, in the place of the system's"`
	Cert string `key:"cert" doc:"a file with the certificate that we show"`
	Key  string `key:"key" doc:"a file with the key of nats.tls.cert"`
}

// Cache configures a Redis of the process.
type Cache struct {
	URL URL `key:"url" schemes:"redis|rediss|redis-sentinel|rediss-sentinel|redis-cluster|rediss-cluster" doc:"where it is"`
}

// Cluster configures how the processes of one machine work together.
type Cluster struct {
	Workers     int           `key:"workers" default:"1" min:"1" max:"256" doc:"how many processes serve; more than one are run by a supervisor"`
	HangTimeout time.Duration `key:"hang_timeout" default:"30s" min:"0s" doc:"how long a worker may leave its supervisor without an answer before it is killed and replaced; at least 1s, or 0 for ever; default 0 in env dev"`
	Socket      string        `key:"socket" doc:"where unrelated processes of this machine meet: a path, or auto"`
}

// App configures one app of the process.
type App struct {
	Addr           Addr          `key:"addr" doc:"where the app listens; default 127.0.0.1:8080 for the first app, 8081 for the second; one with a host or a prefix listens with the first app that has neither"`
	Host           string        `key:"host" pattern:"^(\\*\\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" like:"admin.example.org or *.example.org" doc:"the app answers requests for this host alone, or with *. in front for any below it"`
	Prefix         string        `key:"prefix" pattern:"^(/[A-Za-z0-9._~-]+)+$" like:"/admin" doc:"the app answers requests for paths below this one alone"`
	Locales        []string      `key:"locales" pattern:"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$" like:"en or ko-KR" doc:"the languages that the app speaks, the preferred one first"`
	LogLevel       string        `key:"log_level" inherits:"log.level" enum:"debug|info|warn|error" reload:"live" doc:"the least level that the app writes"`
	BodyLimit      Size          `key:"body_limit" default:"1MiB" min:"1B" reload:"live" doc:"the largest body of a request"`
	Timeout        time.Duration `key:"timeout" default:"30s" min:"0s" reload:"live" doc:"how long a request may take; 0 for as long as it likes"`
	TrustedOrigins []string      `key:"trusted_origins" pattern:"^https?://[A-Za-z0-9.-]+(:[0-9]+)?$" like:"https://shop.example.org" doc:"other sites whose pages may send forms to the app"`
}

// Ops configures the listener for operators and monitoring.
type Ops struct {
	Addr  Addr   `key:"addr" default:"127.0.0.1:9090" required:"true" doc:"where /livez, /readyz and /metrics are served; unless it is set, a free port where this one is taken"`
	Token Secret `key:"token" pattern:"^[!-~]{16,256}$" like:"the output of openssl rand -hex 32" doc:"the bearer token that /ops/* and /debug/* require; without it they are served on a loopback address only"`
}

// Boot configures the start of the process.
type Boot struct {
	WaitFor time.Duration `key:"wait_for" default:"10s" min:"0s" doc:"how long to wait for a server that does not answer"`
}

// Shutdown configures the end of the process.
type Shutdown struct {
	Timeout time.Duration `key:"timeout" default:"30s" min:"0s" doc:"how long the whole end may take, most of it for requests in flight"`
	Delay   time.Duration `key:"delay" default:"0s" min:"0s" doc:"how long to keep serving after readiness is gone, at most half of shutdown.timeout; default 5s in Kubernetes"`
}

// Log configures the log of the process.
type Log struct {
	Level  string `key:"level" default:"info" enum:"debug|info|warn|error" reload:"live" doc:"the least level that is written"`
	Format string `key:"format" default:"auto" enum:"auto|text|json" doc:"text on a terminal and in dev, else json, unless set"`
}
