/* A compiled program that uses up one thing: a word and two numbers on descriptor 3 say what and how much of it.
 *
 * For tests of the jail's limits, below the frames. A line on descriptor 4 is one fact; `errno` is 0 for what worked.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)

static void tell(const char *what, long value) { dprintf(4, "%s %ld\n", what, value); }

/* Map, and write to each page, so that it is there. */
static void hold(int how, unsigned long mib) {
    char *area = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) {
        tell("errno", errno);
        return;
    }
    for (unsigned long at = 0; at < mib * MIB; at += 4096) area[at] = 1;
    tell("held", (long)mib);
}

/* So many processes below this one, each of which holds so much, and all stay for so long, or for good. */
static void family(unsigned long count, unsigned long mib, unsigned microseconds) {
    for (unsigned long index = 0; index < count; index++)
        if (fork() == 0) {
            hold(MAP_PRIVATE, mib);
            if (microseconds == 0) pause();
            usleep(microseconds);
            _exit(0);
        }
    while (wait(NULL) > 0) continue;
    tell("left", 0);
    if (microseconds == 0) pause();
}

static void spin(unsigned long count) {
    for (unsigned long index = 1; index < count; index++)
        if (fork() == 0) break;
    for (;;) continue;
}

/* One short process after the other, each of 20 ms, and nobody who asks what they have used. */
static void drizzle(void) {
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        if (fork() == 0) {
            struct timespec now;
            do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
            while (now.tv_sec == 0 && now.tv_nsec < 20000000);
            _exit(0);
        }
        while (wait(NULL) > 0) continue;
    }
}

/* As many copies of this program at once as there can be, up to so many; each stays. */
static void crowd(unsigned long most) {
    volatile unsigned long count = 0;
    for (; count < most; count++) {
        pid_t below = vfork();
        if (below == 0) {
            execl("/app/connector", "connector", "stays", NULL);
            _exit(1);
        }
        if (below < 0) break;
    }
    tell("crowd", (long)count);
}

static void fill(const char *path, unsigned long mib) {
    static char piece[MIB];
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    long written = 0;
    memset(piece, 1, sizeof piece);
    for (unsigned long index = 0; index < mib; index++) {
        ssize_t count = write(file, piece, sizeof piece);
        if (count < 0) {
            tell("errno", errno);
            break;
        }
        written += count;
    }
    close(file);
    tell("written", written);
}

/* A process below this one writes too large a file: what ends it? */
static void fill_below(unsigned long mib) {
    int status = 0;
    pid_t below = fork();
    if (below == 0) {
        fill("/tmp/x", mib);
        _exit(0);
    }
    waitpid(below, &status, 0);
    tell("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) pause();
    char words[64] = "", what[32] = "";
    unsigned long one = 0, two = 0;
    if (read(3, words, sizeof words - 1) < 0 || sscanf(words, "%31s %lu %lu", what, &one, &two) < 1) return 64;
    if (strcmp(what, "private") == 0) hold(MAP_PRIVATE, one);
    else if (strcmp(what, "shared") == 0) hold(MAP_SHARED, one);
    else if (strcmp(what, "shared-for-good") == 0) {
        hold(MAP_SHARED, one);
        pause();
    } else if (strcmp(what, "family") == 0) family(one, two, 0);
    else if (strcmp(what, "brief-family") == 0) family(one, two, 600000);
    else if (strcmp(what, "spin") == 0) spin(one);
    else if (strcmp(what, "drizzle") == 0) drizzle();
    else if (strcmp(what, "crowd") == 0) crowd(one);
    else if (strcmp(what, "fill") == 0) fill("/tmp/x", one);
    else if (strcmp(what, "fill-below") == 0) fill_below(one);
    else if (strcmp(what, "fill-and-hold") == 0) {
        fill("/tmp/x", one);
        hold(MAP_PRIVATE, two);
    } else return 64;
    return 0;
}
