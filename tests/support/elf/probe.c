/* A compiled program that does what one word on descriptor 3 says, and tells on descriptor 4 what it met.
 *
 * For tests of the jail, below the frames. A line is one fact; `errno` is 0 for what worked.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vdprintf(4, format, rest);
    va_end(rest);
}

static void tell_errno(const char *what, long result) { tell("%s %d\n", what, result < 0 ? errno : 0); }

static void list(const char *directory) {
    char path[4096];
    DIR *open_directory = opendir(directory);
    if (open_directory == NULL) return;
    for (struct dirent *entry; (entry = readdir(open_directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", strcmp(directory, "/") == 0 ? "" : directory, entry->d_name);
        if (entry->d_type == DT_DIR) list(path);
        else tell("%s\n", path);
    }
    closedir(open_directory);
}

static void facts(int argc, char **argv) {
    struct sigaction action;
    int ignored = 0;
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0) tell("open %d\n", fd);
    for (int number = 1; number < 32; number++)
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN) ignored++;
    tell("ids %d %d %d %d\n", getpid(), getppid(), getuid(), getgid());
    tell("arguments %d %s\n", argc, argv[0]);
    tell("environment %d\n", environ[0] != NULL);
    tell("ignored %d\n", ignored);
    tell("here %s\n", get_current_dir_name());
}

static void stay(void) {
    for (;;) pause();
}

static void ignore_everything(void) {
    for (int number = 1; number < 64; number++) signal(number, SIG_IGN);
}

/* A process of its own session that nobody waits for. */
static void double_fork(void) {
    if (fork() == 0) {
        setsid();
        ignore_everything();
        if (fork() != 0) _exit(0);
        stay();
    }
    wait(NULL);
}

static void stop_a_child(void) {
    pid_t child = fork();
    if (child == 0) stay();
    tell_errno("stop", kill(child, SIGSTOP));
    waitpid(child, NULL, WUNTRACED);
}

/* Each generation leaves the next one behind, ten deep; the last one stays. */
static void orphan_the_grandchildren(void) {
    int last[2];
    char byte;
    if (pipe(last) < 0 || fork() != 0) {
        close(last[1]);
        while (read(last[0], &byte, 1) < 0) continue;
        return;
    }
    for (int generation = 0; generation < 10; generation++) {
        setsid();
        ignore_everything();
        if (fork() > 0) _exit(0);
    }
    if (write(last[1], "", 1) == 1) stay();
}

/* Descriptors of every process pass to all that come later. */
static void hoard(void) {
    while (open("/dev/null", O_RDONLY) >= 0) continue;
    if (fork() == 0) stay();
}

static void fork_without_end(void) {
    int count = 0;
    for (pid_t child; count < 1000 && (child = fork()) >= 0; count++)
        if (child == 0) stay();
    tell("forked %d %d\n", count, errno);
}

static void try_to_become_another(void) {
    char *const nothing[] = {NULL}, *const scratch[] = {"x", NULL};
    int copy = open("/tmp/x", O_CREAT | O_WRONLY, 0700);
    dprintf(copy, "\x7f" "ELF");
    close(copy);
    tell_errno("scratch", execve("/tmp/x", scratch, nothing));
    tell_errno("program", open("/app/connector", O_WRONLY));
    tell_errno("beside", open("/app/other", O_CREAT | O_WRONLY, 0700));
    tell_errno("unlink", unlink("/app/connector"));
    tell_errno("executable-memory", memfd_create("x", 0));
    tell_errno("write", creat("/x", 0700));
}

static void connect_somewhere(void) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(443)};
    inet_pton(AF_INET, "93.184.216.34", &there.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    tell_errno("socket", fd);
    tell_errno("connect", connect(fd, (struct sockaddr *)&there, sizeof there));
}

static void *be_a_thread(void *count) {
    __atomic_add_fetch((int *)count, 1, __ATOMIC_SEQ_CST);
    stay();
    return NULL;
}

static void cancel_a_thread(void) {
    pthread_t thread;
    int count = 0;
    tell("thread %d\n", pthread_create(&thread, NULL, be_a_thread, &count));
    tell("cancel %d\n", pthread_cancel(thread));
    tell("join %d\n", pthread_join(thread, NULL));
}

static void limits(void) {
    static const struct {
        const char *name;
        int kind;
    } all[] = {{"data", RLIMIT_DATA}, {"as", RLIMIT_AS}, {"nproc", RLIMIT_NPROC}, {"nofile", RLIMIT_NOFILE}};
    struct rlimit limit;
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        if (getrlimit(all[index].kind, &limit) == 0) tell("%s %lu\n", all[index].name, limit.rlim_max);
}

/* Allocate and touch, a MiB at a time, until there is no more. */
static void eat(void) {
    int count = 0;
    for (char *piece; count < 4096 && (piece = malloc(1 << 20)) != NULL; count++) memset(piece, 1, 1 << 20);
    tell("eaten %d\n", count);
}

int main(int argc, char **argv) {
    char word[64] = "";
    ssize_t size = argc > 1 ? 0 : read(3, word, sizeof word - 1);
    const char *what = argc > 1 ? argv[1] : word;
    if (size < 0) return 70;
    if (strcmp(what, "facts") == 0) facts(argc, argv);
    else if (strcmp(what, "list") == 0) list("/");
    else if (strcmp(what, "limits") == 0) limits();
    else if (strcmp(what, "eat") == 0) eat();
    else if (strcmp(what, "double-fork") == 0) double_fork();
    else if (strcmp(what, "stop") == 0) stop_a_child();
    else if (strcmp(what, "orphans") == 0) orphan_the_grandchildren();
    else if (strcmp(what, "hoard") == 0) hoard();
    else if (strcmp(what, "fork") == 0) tell_errno("fork", fork());
    else if (strcmp(what, "forks") == 0) fork_without_end();
    else if (strcmp(what, "become-another") == 0) try_to_become_another();
    else if (strcmp(what, "connect") == 0) connect_somewhere();
    else if (strcmp(what, "cancel") == 0) cancel_a_thread();
    else if (strcmp(what, "again") == 0) tell("again %d\n", getpid());
    else if (strcmp(what, "exec-itself") == 0)
        tell_errno("exec", execve("/app/connector", (char *[]){"connector", "again", NULL}, (char *[]){NULL}));
    else if (strcmp(what, "stay") != 0) return 64;
    tell("ready\n");
    /* Stay until the host closes descriptor 3, or for good if it does not. */
    while (read(3, word, sizeof word) > 0) continue;
    return 0;
}
