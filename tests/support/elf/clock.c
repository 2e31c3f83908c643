/* Preloaded into a daemon (ld.so(8)): the wall clock is off by as many seconds as the file says that FAKE_CLOCK names.
 *
 * Only CLOCK_REALTIME, as when somebody sets the clock; the monotonic one goes on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static const char *path;
    char text[32] = "";
    if (real == NULL) {
        path = getenv("FAKE_CLOCK");
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int result = real(clock, now);
    int file = clock == CLOCK_REALTIME && path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return result;
    if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atoll(text);
    close(file);
    return result;
}
