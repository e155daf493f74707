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
//	          words  reports                 two pipes, a line of JSON each
//	            ▼      │
//	          holder, in a session of its own ── redis, or the hub of the node
//
// The front is the process that the script starts. It starts the command, passes
// signals on, and returns the command's exit status. The holder has the lease:
// it waits in the queue, renews, and enforces the end of the lease on the
// command's group, also while the front is stopped. The end of the pipe from the
// front is the end of the front, and the holder kills the group then.
//
// Without a URL the locks are kept by the hub of this user's node. A script never
// becomes the hub: the first one starts a keeper process, which exits when it
// has had no client for ten seconds and no grant of a limit counts any more.
//
// # Conversation
//
//	front                      holder
//	order           ───►       waits for the lease
//	                ◄───       granted
//	start           ───►       (after the TTL without it, the lease is given back)
//	                ◄───       go
//	(starts CMD)
//	group           ───►       watches the group
//	done            ───►       releases the lease
//	                ◄───       over
//
// Of the framework only lock, the drivers and the boundary of limits are linked,
// so that the small binary stays small.
package shell
