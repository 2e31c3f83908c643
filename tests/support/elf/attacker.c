/* What a hostile compiled program tries, without a library in between: system calls by number, other ABIs by machine code.
 *
 * A word on descriptor 3 says what; descriptor 4 is told, a line for each try: its name without blanks, and its errno (0 where it
 * worked). Some tries are the end of the program; then nothing more is told, and that is the answer.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BIT_32 (1UL << 32)

static void tell(const char *name, long result) {
    dprintf(4, "%s %d\n", name, result < 0 ? errno : 0);
}

static void tell_numbered(const char *name, int one, int two, long result) {
    int number = errno;
    char text[64];
    snprintf(text, sizeof text, "%s/%d/%d", name, one, two);
    errno = number;
    tell(text, result);
}

/* Every family and kind, alone and as a pair. What the jail gives for a socket of IPv4 or IPv6 is asked whether it is one. */
static void sockets(void) {
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, 6, SOCK_PACKET};
    for (int family = 0; family <= 45; family++)
        for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) {
            long made = syscall(SYS_socket, family, kinds[at], 0);
            if (made >= 0) {
                struct sockaddr_storage name;
                socklen_t size = sizeof name;
                int fd = made;
                made = getsockname(fd, (struct sockaddr *)&name, &size);
                int number = errno;
                close(fd);
                errno = number;
            }
            tell_numbered("socket", family, kinds[at], made);
        }
}

static void pairs(void) {
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
    for (int family = 0; family <= 45; family++)
        for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) {
            int both[2];
            long made = syscall(SYS_socketpair, family, kinds[at], 0, both);
            tell_numbered("pair", family, kinds[at], made);
            if (made == 0) close(both[0]), close(both[1]);
        }
}

static int any_socket(int kind) { return syscall(SYS_socket, AF_INET, kind, 0); }

static struct sockaddr_in place(uint16_t port) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return there;
}

/* Each way to send to a place on 127.0.0.1, whose port follows the word. */
static void reach(const char *how, uint16_t port) {
    struct sockaddr_in there = place(port);
    struct sockaddr_in6 there6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct iovec byte = {"x", 1};
    struct mmsghdr message = {.msg_hdr = {.msg_name = &there, .msg_namelen = sizeof there, .msg_iov = &byte, .msg_iovlen = 1}};
    int both[2] = {-1, -1};
    socketpair(AF_UNIX, SOCK_DGRAM, 0, both);
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "aileron-attack-%d", port);
    if (strcmp(how, "connect") == 0) tell(how, connect(any_socket(SOCK_STREAM), (void *)&there, sizeof there));
    else if (strcmp(how, "connect6") == 0)
        tell(how, connect(syscall(SYS_socket, AF_INET6, SOCK_STREAM, 0), (void *)&there6, sizeof there6));
    else if (strcmp(how, "connect-datagram") == 0) tell(how, connect(any_socket(SOCK_DGRAM), (void *)&there, sizeof there));
    else if (strcmp(how, "connect-a-pair") == 0) tell(how, connect(both[0], (void *)&there, sizeof there));
    else if (strcmp(how, "connect-a-pipe") == 0) tell(how, connect(4, (void *)&there, sizeof there));
    else if (strcmp(how, "connect-a-name") == 0)
        tell(how, connect(both[0], (void *)&name, sizeof name.sun_family + 1 + strlen(name.sun_path + 1)));
    else if (strcmp(how, "sendto") == 0) tell(how, sendto(any_socket(SOCK_DGRAM), "x", 1, 0, (void *)&there, sizeof there));
    else if (strcmp(how, "sendto-fast-open") == 0)
        tell(how, sendto(any_socket(SOCK_STREAM), "x", 1, MSG_FASTOPEN, (void *)&there, sizeof there));
    else if (strcmp(how, "sendmsg") == 0) tell(how, sendmsg(any_socket(SOCK_DGRAM), &message.msg_hdr, 0));
    else if (strcmp(how, "sendmmsg") == 0) tell(how, sendmmsg(any_socket(SOCK_DGRAM), &message, 1, 0));
    else if (strcmp(how, "raw") == 0) tell(how, sendto(syscall(SYS_socket, AF_INET, SOCK_RAW, 1), "x", 1, 0, (void *)&there, sizeof there));
    else if (strcmp(how, "a-name") == 0)
        tell(how, sendto(both[0], "x", 1, 0, (void *)&name, sizeof name.sun_family + 1 + strlen(name.sun_path + 1)));
    else if (strcmp(how, "high-bits") == 0) /* the kernel looks at 32 bits of a family, a filter at 64 */
        tell(how, connect(syscall(SYS_socket, BIT_32 | AF_INET, SOCK_STREAM, 0), (void *)&there, sizeof there));
    if (both[0] >= 0) close(both[0]), close(both[1]);
}

/* Flags that select rarely used parts of the kernel, of calls that everybody makes; `honest/…` is what libraries ask of the same. */
static void flags(void) {
    int stream[2] = {-1, -1}, pair[2], end[2], size = sizeof end, word = 0;
    char byte;
    struct timespec now;
    const size_t page = 4096;
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream);
    tell("honest/send", send(stream[0], "xx", 2, MSG_DONTWAIT | MSG_NOSIGNAL));
    tell("honest/receive", recv(stream[1], &byte, 1, MSG_PEEK));
    tell("send-out-of-band", send(stream[0], "x", 1, MSG_OOB));
    tell("send-out-of-band-and-more", send(stream[0], "x", 1, MSG_OOB | MSG_DONTWAIT));
    tell("receive-out-of-band", recv(stream[1], &byte, 1, MSG_OOB));
    tell("pair-of-datagrams", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    tell("pair-of-packets", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    tell("honest/option", getsockopt(stream[0], SOL_SOCKET, SO_TYPE, end, (socklen_t *)&size));
    tell("option-of-the-peer", getsockopt(stream[0], SOL_SOCKET, SO_PEERCRED, end, (socklen_t *)&size));
    tell("honest/pipe", pipe2(end, O_CLOEXEC | O_NONBLOCK));
    tell("honest/settings", fcntl(end[0], F_SETFL, fcntl(end[0], F_GETFL) & ~O_NONBLOCK));
    tell("signals-from-a-pipe", fcntl(end[0], F_SETFL, O_ASYNC));
    tell("pipe-of-packets", pipe2(pair, O_DIRECT));
    tell("honest/open", open("/dev/null", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    tell("open-with-signals", open("/dev/null", O_RDONLY | O_ASYNC));
    tell("close-alone", syscall(SYS_close_range, 900, 901, 2));
    void *here = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    tell("honest/map", here == MAP_FAILED ? -1 : 0);
    tell("map-that-grows", mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0) == MAP_FAILED ? -1 : 0);
    tell("protect-for-semaphores", mprotect(here, page, PROT_READ | PROT_WRITE | 8));
    tell("honest/advise", madvise(here, page, MADV_DONTNEED));
    tell("advise-cold", madvise(here, page, 20));
    void *private = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tell("move-and-keep", mremap(private, page, page, MREMAP_MAYMOVE | 4, NULL) == MAP_FAILED ? -1 : 0);
    tell("honest/barrier", syscall(SYS_membarrier, 0, 0, 0));
    tell("barrier-of-everybody", syscall(SYS_membarrier, 1, 0, 0));
    tell("honest/wake", syscall(SYS_futex, &word, 1 | 128, 1, NULL, NULL, 0));
    tell("lock-with-priority", syscall(SYS_futex, &word, 6 | 128, 0, NULL, NULL, 0));
    tell("unlock-with-priority", syscall(SYS_futex, &word, 7 | 128, 0, NULL, NULL, 0));
    tell("honest/clock", syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now));
    tell("clock-of-a-process", syscall(SYS_clock_gettime, (~(clockid_t)getpid() << 3) | 2, &now));
    tell("robust-list", syscall(SYS_get_robust_list, 0, &here, &page));
    close(open("one", O_CREAT | O_WRONLY, 0600)), close(open("other", O_CREAT | O_WRONLY, 0600));
    tell("exchange", syscall(SYS_renameat2, AT_FDCWD, "one", AT_FDCWD, "other", 2));
    tell("honest/rename", syscall(SYS_renameat2, AT_FDCWD, "one", AT_FDCWD, "third", 1));
    int file = open("third", O_RDONLY);
    tell("forget-pages", posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) ? (errno = EPERM, -1) : 0);
}

/* What a call that makes a process has made: the child leaves at once. */
static long made_process(long result) {
    if (result == 0) _exit(0);
    return result;
}

/* Its own copy of a program: made anew in the scratch space and in memory, executed by path and by descriptor, mapped as code. */
static void new_program(void) {
    static const char header[64] = "\x7f" "ELF\x02\x01\x01";
    char *const arguments[] = {"x", NULL}, *const nothing[] = {NULL};
    int copy = open("x", O_CREAT | O_RDWR, 06755);
    if (write(copy, header, sizeof header) < 0) tell("write-scratch", -1);
    tell("execute-by-path", execve("x", arguments, nothing));
    tell("execute-by-descriptor", syscall(SYS_execveat, copy, "", arguments, nothing, AT_EMPTY_PATH));
    close(copy);
    copy = open("x", O_RDONLY);
    tell("execute-read-only", syscall(SYS_execveat, copy, "", arguments, nothing, AT_EMPTY_PATH));
    tell("map-as-code", mmap(NULL, 64, PROT_READ | PROT_EXEC, MAP_PRIVATE, copy, 0) == MAP_FAILED ? -1 : 0);
    tell("memory-file", syscall(SYS_memfd_create, "x", 0));
    tell("secret-memory", syscall(SYS_memfd_secret, 0));
    tell("execute-a-device", execve("/dev/zero", arguments, nothing));
}

static void refused(void) {
    int pipe_ends[2];
    struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    timer_t timer;
    tell("clone-user-namespace", made_process(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)));
    tell("clone-all-namespaces", made_process(syscall(SYS_clone, 0x7E020000 | SIGCHLD, 0, 0, 0, 0)));
    tell("clone3", syscall(SYS_clone3, 0, 0));
    tell("fork", made_process(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)));
    tell("seccomp-listener", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, NULL));
    tell("prctl-seccomp", syscall(SYS_prctl, 22, 2, 0, 0, 0));
    tell("prctl-dumpable", syscall(SYS_prctl, 4, 1, 0, 0, 0));
    tell("prctl-subreaper", syscall(SYS_prctl, 36, 1, 0, 0, 0));
    tell("prctl-any-tracer", syscall(SYS_prctl, 0x59616d61, -1, 0, 0, 0));
    tell("personality-no-randomisation", syscall(SYS_personality, 0x0040000));
    tell("personality-read-implies-exec", syscall(SYS_personality, 0x0400000));
    tell("terminal-input", syscall(SYS_ioctl, 0, 0x5412, "x"));
    tell("terminal-input-high-bits", syscall(SYS_ioctl, 0, BIT_32 | 0x5412, "x"));
    tell("console-paste-high-bits", syscall(SYS_ioctl, 0, BIT_32 | 0x541C, "x"));
    tell("signals-of-descriptors", fcntl(0, F_SETOWN, 1));
    tell("signal-by-queue", syscall(SYS_rt_sigqueueinfo, 1, SIGKILL, 0));
    tell("descriptor-of-a-process", syscall(SYS_pidfd_open, 1, 0));
    tell("timers", syscall(SYS_timer_create, 0, &quiet, &timer));
    tell("larger-pipe", pipe(pipe_ends) == 0 ? fcntl(pipe_ends[1], F_SETPIPE_SZ, 1 << 20) : -1);
    tell("splice", syscall(SYS_splice, pipe_ends[0], 0, 4, 0, 1, 2));
    tell("vmsplice", syscall(SYS_vmsplice, 4, 0, 0, 0));
    tell("landlock", syscall(SYS_landlock_create_ruleset, 0, 0, 1));
    tell("priority", syscall(SYS_setpriority, 0, 0, -5));
    tell("limits", syscall(SYS_setrlimit, 7, (uint64_t[]){1 << 20, 1 << 20}));
    tell("shared-segment", syscall(SYS_shmget, 1, 4096, 01777));
    tell("message-queue", syscall(SYS_mq_open, "/x", O_CREAT, 0600, 0));
    tell("watch", syscall(SYS_inotify_init1, 0));
    tell("handle", syscall(SYS_fanotify_init, 0, 0));
    tell("device", syscall(SYS_mknodat, AT_FDCWD, "device", S_IFCHR | 0600, 0x103));
    tell("log", syscall(SYS_syslog, 3, 0, 0));
    tell("time", syscall(SYS_clock_settime, 0, 0));
    tell("receive-message", recvmsg(3, &(struct msghdr){0}, 0));
    tell("copy-file-range", syscall(SYS_copy_file_range, 3, 0, 4, 0, 1, 0));
    tell("close-of-nothing", close(-1));
}

#if defined(__x86_64__)
static long by_int80(long number, long one, long two) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(one), "c"(two) : "memory", "r8", "r9", "r10", "r11");
    return result;
}
#endif

/* Each of these ends a jailed program. Outside, what it answers is told. */
static void forbidden(const char *what) {
    unsigned char parameters[256] = {0};
    struct { const char *name; long number; } calls[] = {
        {"io_uring_setup", SYS_io_uring_setup}, {"io_uring_enter", SYS_io_uring_enter}, {"io_uring_register", SYS_io_uring_register},
        {"unshare", SYS_unshare}, {"setns", SYS_setns}, {"ptrace", SYS_ptrace}, {"process_vm_readv", SYS_process_vm_readv},
        {"process_vm_writev", SYS_process_vm_writev}, {"pidfd_getfd", SYS_pidfd_getfd}, {"kcmp", SYS_kcmp}, {"bpf", SYS_bpf},
        {"perf_event_open", SYS_perf_event_open}, {"userfaultfd", SYS_userfaultfd}, {"keyctl", SYS_keyctl}, {"add_key", SYS_add_key},
        {"request_key", SYS_request_key}, {"kexec_load", SYS_kexec_load}, {"init_module", SYS_init_module},
        {"finit_module", SYS_finit_module}, {"open_by_handle_at", SYS_open_by_handle_at}, {"mount", SYS_mount},
        {"umount2", SYS_umount2}, {"fsopen", SYS_fsopen}, {"open_tree", SYS_open_tree}, {"move_mount", SYS_move_mount},
        {"pivot_root", SYS_pivot_root}, {"chroot", SYS_chroot}, {"mount_setattr", SYS_mount_setattr},
    };
    for (size_t at = 0; at < sizeof calls / sizeof *calls; at++)
        if (strcmp(what, calls[at].name) == 0) tell(what, syscall(calls[at].number, 0, parameters, 0, 0, 0, 0));
#if defined(__x86_64__)
    if (strcmp(what, "int80-getpid") == 0) tell(what, by_int80(20, 0, 0));
    if (strcmp(what, "int80-socketcall") == 0) tell(what, by_int80(102, 1, 0));
    if (strcmp(what, "int80-clone") == 0) tell(what, by_int80(120, CLONE_NEWUSER, 0));
    if (strcmp(what, "x32-getpid") == 0) tell(what, syscall(0x40000000L | SYS_getpid));
    if (strcmp(what, "x32-socket") == 0) tell(what, syscall(0x40000000L | SYS_socket, AF_INET, SOCK_STREAM, 0));
    if (strcmp(what, "x32-ptrace") == 0) tell(what, syscall(0x40000000L | 521, 0, 1, 0, 0));
#endif
}

/* Through io_uring, which no filter of system calls sees into: a socket. */
static void socket_by_io_uring(void) {
    unsigned char parameters[120] = {0};
    long ring = syscall(SYS_io_uring_setup, 4, parameters);
    tell("io_uring", ring);
}

int main(void) {
    char word[64] = "";
    if (read(3, word, sizeof word - 1) < 0) return 70;
    char *argument = strchr(word, ' ');
    if (argument != NULL) *argument++ = '\0';
    signal(SIGPIPE, SIG_IGN);
    if (strcmp(word, "sockets") == 0) sockets();
    else if (strcmp(word, "pairs") == 0) pairs();
    else if (strcmp(word, "flags") == 0) flags();
    else if (strcmp(word, "refused") == 0) refused();
    else if (strcmp(word, "new-program") == 0) new_program();
    else if (strcmp(word, "socket-by-io_uring") == 0) socket_by_io_uring();
    else if (argument != NULL) reach(word, atoi(argument));
    else forbidden(word);
    dprintf(4, "over 0\n");
    return 0;
}
