// Shifts the wall clock of a process by what the file MEGA_CLOCK holds: an
// int64, in nanoseconds, that another process may change at any time. The
// monotonic clock stays, as on a machine whose time is set.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void map_clock(void) {
	const char *path = getenv("MEGA_CLOCK");
	int fd = path ? open(path, O_RDONLY) : -1;
	if (fd < 0) return;
	void *p = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) ahead = p;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int r = (int)syscall(SYS_clock_gettime, id, t);
	if (r != 0 || !ahead || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return r;
	int64_t ns = t->tv_sec * INT64_C(1000000000) + t->tv_nsec + *ahead;
	t->tv_sec = ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	int r = clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return r;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}
