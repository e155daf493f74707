// Package shell is locks and limits for shell scripts: the verbs that run a
// command under a lease or a limit. cmd/mega-lock is these verbs alone; cmd/mega
// and the binaries of applications have them, too.
//
//	mega lock exec deploy -- ./deploy.sh
//	mega lock exec agents --slots 3 -- ./agent
//	mega limit partner --rate 5/800ms -- ./call
//
// # Processes
//
//	script ── mega lock exec ── CMD, in a process group of its own
//	            │      ▲
//	       messages  reports                 two pipes of JSON lines
//	            ▼      │
//	          holder, in a session of its own ── redis, or the hub of the node
//
// The launcher is the process that the script starts. It starts the command, forwards
// signals to it, and returns the command's exit status. The holder has the lease:
// it waits in the queue, renews, and ends the command's group in time before the
// lease ends, also while the launcher is stopped. If the launcher ends, its pipe to the
// holder is closed, and the holder kills the group.
//
// Without a URL the locks are kept by the hub of this user's node. A script never
// becomes the hub: the first one starts a hub process, which exits when it has had
// no client for ten seconds and no grant of a limit counts any more. (Error texts
// call it the keeper of the locks.)
//
// acquire starts a holder without a command, the keeper of the lease. It serves
// release and renew at a socket of its own (lease_unix.go).
//
// # Protocol between launcher and holder
//
//	launcher                   holder
//	order           ───►       waits for the lease
//	                ◄───       preparing (with --init or --cleanup; failing after a failure)
//	                ◄───       granted
//	start           ───►       (after the TTL without it, the lease is given back)
//	                ◄───       go
//	(starts CMD)
//	group           ───►       watches the group
//	done            ───►       releases the lease
//	                ◄───       over
//
// The verbs are in exec.go, acquire.go, limit.go, look.go (ls) and version.go;
// verb.go describes a verb, and flags.go its flags. launcher_unix.go,
// holder_unix.go, lease_unix.go (the keeper) and hub_unix.go are the processes.
//
// Of the framework only lock, the drivers and the boundary of limits are linked,
// so that the small binary stays small.
package shell
