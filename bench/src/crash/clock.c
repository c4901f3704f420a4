/* Preloaded into linerate: its wall clock is set by CLOCK_STEP_S seconds and, with CLOCK_WALKS, by an hour to and fro at
   each look. The other clocks, which nobody can set, are left alone. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now)
{
    static int looks;
    int result = (int)syscall(SYS_clock_gettime, id, now);
    if (result == 0 && id == CLOCK_REALTIME) {
        const char *step = getenv("CLOCK_STEP_S");
        now->tv_sec += step ? atol(step) : 0;
        if (getenv("CLOCK_WALKS"))
            now->tv_sec += looks++ % 2 ? 3600 : -3600;
    }
    return result;
}
