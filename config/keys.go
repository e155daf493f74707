package config

import "time"

// Lock configures the locks of the process.
type Lock struct {
	Driver    string        `key:"driver" default:"auto" enum:"auto|redis|cluster|memory" doc:"the driver of locks"`
	TTL       time.Duration `key:"ttl" default:"10s" min:"100ms" max:"24h" doc:"how long others wait after a crash"`
	Wait      time.Duration `key:"wait" default:"5s" min:"0s" doc:"how long a call waits for a busy lock"`
	FIFO      bool          `key:"fifo" default:"false" doc:"strict order across processes"`
	Namespace string        `key:"namespace" pattern:"^[A-Za-z0-9._-]{1,64}$" like:"staging" doc:"part of the names of all locks and limits, to separate environments on one redis or cluster socket"`
	Cache     string        `key:"cache" doc:"the alias of the cache for locks, if there are several"`
	Require   string        `key:"require" enum:"process|node|fleet" doc:"the least scope of exclusion; the program does not start with a smaller one"`
	Redis     LockRedis     `key:"redis"`
}

// LockRedis configures the redis driver of locks.
type LockRedis struct {
	Engine string `key:"engine" default:"queue" enum:"queue|redislock" doc:"the engine for locks in redis"`
	Key    string `key:"key" default:"mega:{%s}" doc:"template of the names of locks and limits in redis; %s is the key"`
}

// Limit configures the limits of the process. Their names contain
// lock.namespace, and in redis follow lock.redis.key, too.
type Limit struct {
	Driver  string `key:"driver" default:"auto" enum:"auto|redis|cluster|memory" doc:"the driver of limits; auto is the driver of locks, or redis if limit.cache names another cache"`
	Cache   string `key:"cache" doc:"the alias of the cache for limits; default the cache of the locks"`
	Require string `key:"require" enum:"process|node|fleet" doc:"the least scope of limits; the program does not start with a smaller one"`
}

// Bus configures the message bus of the process.
type Bus struct {
	Driver  string  `key:"driver" default:"auto" enum:"auto|nats|cluster|memory" doc:"the driver of the bus"`
	Require string  `key:"require" enum:"process|node|fleet" doc:"the least scope of messages; the program does not start with a smaller one"`
	NATS    BusNATS `key:"nats"`
}

// BusNATS configures the subject names of the bus on NATS.
type BusNATS struct {
	Prefix        string `key:"prefix" pattern:"^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$" like:"shop or shop.eu" doc:"prefix of the subjects of events and requests"`
	EventPrefix   string `key:"event_prefix" default:"ev" pattern:"^([A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*)?$" like:"ev" doc:"prefix of the subjects of events; empty for unchanged subjects"`
	RequestPrefix string `key:"request_prefix" default:"rpc" pattern:"^([A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*)?$" like:"rpc" doc:"prefix of the subjects of requests; empty for unchanged subjects"`
	InboxPrefix   string `key:"inbox_prefix" pattern:"^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$" like:"_INBOX_shop" doc:"the first part of the subjects of answers instead of _INBOX: a permission for it keeps them private"`
}

// NATS configures the process's NATS server.
type NATS struct {
	URL       URL     `key:"url" schemes:"nats|tls" doc:"the address of the server; several servers with commas between them"`
	User      string  `key:"user" doc:"the user name"`
	Password  Secret  `key:"password" doc:"the password of nats.user"`
	Token     Secret  `key:"token" doc:"a token instead of a user"`
	NKeyFile  string  `key:"nkey_file" doc:"a file with an NKey seed instead of a user"`
	CredsFile string  `key:"creds_file" doc:"a file with a JWT and its seed instead of a user"`
	TLS       NATSTLS `key:"tls"`
}

// NATSTLS configures TLS to NATS.
type NATSTLS struct {
	CA   string `key:"ca" doc:"a file with the trusted authorities instead of the system's"`
	Cert string `key:"cert" doc:"a file with the client certificate"`
	Key  string `key:"key" doc:"a file with the key of nats.tls.cert"`

	HandshakeFirst bool `key:"handshake_first" doc:"begin with TLS, before the greeting of the server, as a server with handshake_first requires"`
}

// Cache configures a Redis of the process.
type Cache struct {
	URL URL `key:"url" schemes:"redis|rediss|redis-sentinel|rediss-sentinel|redis-cluster|rediss-cluster" doc:"the address of the server"`
}

// Cluster configures how the processes of one machine work together.
type Cluster struct {
	Workers     int           `key:"workers" default:"1" min:"1" max:"256" doc:"the number of processes that serve; a supervisor runs more than one"`
	HangTimeout time.Duration `key:"hang_timeout" default:"30s" min:"0s" max:"8784h" doc:"how long a worker may not answer its supervisor before it is killed and replaced; at least 1s, or 0 for no limit; default 0 in env dev"`
	Socket      string        `key:"socket" doc:"the socket that unrelated processes of this machine share: a path, or auto"`
}

// App configures one app of the process.
type App struct {
	Addr           Addr          `key:"addr" doc:"the address of the app; default 127.0.0.1:8080 for the first app, 8081 for the second; an app with a host or a prefix shares the address of the first app without them"`
	Host           string        `key:"host" pattern:"^(\\*\\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" like:"admin.example.org or *.example.org" doc:"the app answers only requests for this host, or with *. in front for any host below it"`
	Prefix         string        `key:"prefix" pattern:"^(/[.]*[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$" like:"/admin" doc:"the app answers only requests for paths below this one"`
	Locales        []string      `key:"locales" pattern:"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$" like:"en or ko-KR" doc:"the locales of the app, the preferred one first"`
	TLS            AppTLS        `key:"tls"`
	LogLevel       string        `key:"log_level" inherits:"log.level" enum:"debug|info|warn|error" reload:"live" doc:"the lowest log level of the app"`
	BodyLimit      Size          `key:"body_limit" default:"1MiB" min:"1B" reload:"live" doc:"the largest body of a request"`
	Timeout        time.Duration `key:"timeout" default:"30s" min:"0s" reload:"live" doc:"how long a request may take; 0 for no limit"`
	TrustedOrigins []string      `key:"trusted_origins" pattern:"^https?://[A-Za-z0-9.-]+(:[0-9]+)?$" like:"https://shop.example.org" doc:"other sites whose pages may send forms to the app"`
}

// AppTLS configures TLS on the listener of an app.
type AppTLS struct {
	Cert string `key:"cert" doc:"a file with the certificate of the app and its chain, in PEM; the listener of the app serves HTTPS; read again at SIGHUP"`
	Key  string `key:"key" doc:"a file with the private key of tls.cert, in PEM"`
}

// Ops configures the listener for operators and monitoring.
type Ops struct {
	Addr    Addr   `key:"addr" default:"127.0.0.1:9090" required:"true" doc:"the address of /livez, /readyz and /metrics; if it is not set and the default is in use, a free port"`
	Console bool   `key:"console" default:"false" doc:"serve /console, the pages for people; default true in env dev"`
	Actions bool   `key:"actions" default:"false" doc:"let the console release locks by force; default true in env dev on a loopback address"`
	Token   Secret `key:"token" pattern:"^[!-~]{16,256}$" like:"the output of openssl rand -hex 32" doc:"the bearer token that /console, /ops/* and /debug/* require; without it they are served on a loopback address only"`
}

// Boot configures the start of the process.
type Boot struct {
	WaitFor time.Duration `key:"wait_for" default:"10s" min:"0s" max:"8784h" doc:"how long to wait for a server that does not answer"`
}

// Shutdown configures the end of the process.
type Shutdown struct {
	Timeout time.Duration `key:"timeout" default:"30s" min:"0s" max:"8784h" doc:"how long the shutdown may take, most of it for requests in flight"`
	Delay   time.Duration `key:"delay" default:"0s" min:"0s" max:"8784h" doc:"how long to keep serving after /readyz fails; half of shutdown.timeout if that is shorter; default 5s in Kubernetes"`
}

// Log configures the log of the process.
type Log struct {
	Level  string `key:"level" default:"info" enum:"debug|info|warn|error" reload:"live" doc:"the lowest log level"`
	Format string `key:"format" default:"auto" enum:"auto|text|json" doc:"text on a terminal and in dev, else json, unless set"`
}
