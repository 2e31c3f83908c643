/* A connector in C: greets, fetches, uploads, copies; and does what it may not, or only if its manifest says so.
 *
 * Written from docs/reference/frames.md. It stands for a connector in any language but Python.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "frames.h"

enum { CHUNK = 64 << 10 };

static struct view arguments; /* of the invocation */
static struct bytes first_host; /* "http://host:port" */

static uint64_t mixed(uint64_t sum, const unsigned char *data, size_t size) {
    while (size-- > 0) sum = (sum ^ *data++) * 0x100000001b3; /* FNV-1a */
    return sum;
}

static char *url_of(const char *key) {
    char *path = text_of(arguments, key), *url;
    if (path == NULL || asprintf(&url, "%.*s%s", (int)first_host.size, first_host.data, path) < 0) return NULL;
    free(path);
    return url;
}

/* What an answer was, read to its end. */
struct answer {
    uint64_t status, size, sum, chunks;
    bool is_refused;
    struct bytes start; /* the first bytes of its body */
};

/* Take in one frame of an answer; true for its last. */
static bool takes(struct answer *answer, const struct frame *frame) {
    if (is_type(frame, "refused")) return answer->is_refused = true;
    if (is_type(frame, "http_head")) {
        answer->status = number_of(frame->header, "status", 0);
        return false;
    }
    answer->size += frame->body_size;
    answer->chunks += frame->body_size > 0;
    answer->sum = mixed(answer->sum, frame->body, frame->body_size);
    if (answer->start.size < 256) append(&answer->start, frame->body, frame->body_size < 256 ? frame->body_size : 256);
    return number_of(frame->header, "end", 0);
}

static void report(const struct answer *answer, uint64_t sent) {
    struct bytes output = {0};
    char sum[17];
    if (answer->is_refused) {
        send_failure("network_error", "the request was refused");
        return;
    }
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)answer->sum);
    put_map(&output, 5);
    put_text(&output, "status"), put_int(&output, answer->status);
    put_text(&output, "bytes"), put_int(&output, answer->size);
    put_text(&output, "sum"), put_text(&output, sum);
    put_text(&output, "chunks"), put_int(&output, answer->chunks);
    put_text(&output, "sent"), put_int(&output, sent);
    send_result(&output);
}

static const struct answer NOTHING_YET = {.sum = 0xcbf29ce484222325};

/* GET `path`, whole, as it comes. */
static void fetch(void) {
    struct answer answer = NOTHING_YET;
    char *url = url_of("path");
    if (url == NULL) {
        send_failure("bad_input", "path is missing");
        return;
    }
    send_request(1, "GET", url, text_of(arguments, "credential"), false);
    for (struct frame frame = receive(); !takes(&answer, &frame); frame = receive()) continue;
    report(&answer, 0);
}

/* POST `size` bytes to `path`, in chunks; byte number n is n modulo 251. */
static void upload(void) {
    struct answer answer = NOTHING_YET;
    static unsigned char chunk[CHUNK];
    char *url = url_of("path");
    uint64_t size = number_of(arguments, "size", 0), sent = 0;
    if (url == NULL) {
        send_failure("bad_input", "path is missing");
        return;
    }
    send_request(1, "POST", url, NULL, true);
    while (sent < size) {
        size_t part = size - sent < CHUNK ? size - sent : CHUNK;
        for (size_t index = 0; index < part; index++) chunk[index] = (sent + index) % 251;
        send_chunk(1, chunk, part, false);
        sent += part;
    }
    send_chunk(1, NULL, 0, true);
    for (struct frame frame = receive(); !takes(&answer, &frame); frame = receive()) continue;
    report(&answer, sent);
}

/* GET `from` and POST what comes to `to` while it comes: two requests at once. */
static void copy(void) {
    struct answer source = NOTHING_YET, target = NOTHING_YET;
    char *from = url_of("from"), *to = url_of("to");
    bool has_source = false, has_target = false;
    if (from == NULL || to == NULL) {
        send_failure("bad_input", "from and to are needed");
        return;
    }
    send_request(1, "GET", from, NULL, false);
    send_request(2, "POST", to, NULL, true);
    while (!has_source || !has_target) {
        struct frame frame = receive();
        if (number_of(frame.header, "id", 0) == 2) {
            has_target = takes(&target, &frame);
            continue;
        }
        has_source = takes(&source, &frame);
        if (frame.body_size > 0) {
            /* Sending may move what was received: send a copy. */
            struct bytes body = {0};
            append(&body, frame.body, frame.body_size);
            send_chunk(2, body.data, body.size, false);
            free(body.data);
        }
        if (has_source) send_chunk(2, NULL, 0, true);
    }
    report(&target, source.size);
}

static void *add_up(void *number) {
    ++*(int *)number;
    return NULL;
}

/* What a program can say about where it runs. */
static void greet(void) {
    struct bytes output = {0};
    char *name = text_of(arguments, "name");
    pthread_t thread;
    int threads = 0, count = 0;
    if (pthread_create(&thread, NULL, add_up, &threads) == 0) pthread_join(thread, NULL);
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) count++;
    send_log("a greeting in C");
    put_map(&output, 5);
    put_text(&output, "greeting"), put_text(&output, name ? name : "nobody");
    put_text(&output, "pid"), put_int(&output, getpid());
    put_text(&output, "threads"), put_int(&output, threads);
    put_text(&output, "environment"), put_int(&output, count);
    put_text(&output, "program"), put_text(&output, program_invocation_name);
    send_result(&output);
}

/* Start a process that stays: of its own session, orphaned, deaf to signals. Then answer, and leave it behind. */
static void leave_behind(void) {
    struct bytes output = {0};
    pid_t child = fork();
    if (child < 0) {
        send_failure("connector_runtime_error", strerror(errno));
        return;
    }
    if (child == 0) {
        setsid();
        for (int number = 1; number < 32; number++) signal(number, SIG_IGN);
        if (fork() != 0) _exit(0);
        for (;;) pause();
    }
    waitpid(child, NULL, 0);
    put_map(&output, 1);
    put_text(&output, "left"), put_int(&output, 1);
    send_result(&output);
}

/* Go to a server without asking, as a program does that was not written for a jail. */
static void reach_out(void) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(443)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "93.184.216.34", &there.sin_addr);
    if (fd < 0 || connect(fd, (struct sockaddr *)&there, sizeof there) < 0) {
        send_failure("network_error", strerror(errno));
        return;
    }
    send_failure("network_error", "connected");
}

static const struct {
    const char *name;
    void (*run)(void);
} OPERATIONS[] = {
    {"greet", greet}, {"fetch", fetch},         {"upload", upload},
    {"copy", copy},   {"reach_out", reach_out}, {"leave_behind", leave_behind},
};

static void find_first_host(struct view invoke) {
    struct view hosts, port;
    uint64_t count;
    char text[32];
    if (!find(invoke, "hosts", &hosts) || open_value(&hosts, &count) != ARRAY || count == 0) return;
    char *host = text_of(hosts, "host");
    bool is_plain = number_of(hosts, "plain", 0);
    if (host == NULL || !find(hosts, "port", &port)) die("a host without a name");
    append(&first_host, is_plain ? "http://" : "https://", is_plain ? 7 : 8);
    append(&first_host, host, strlen(host));
    append(&first_host, text, snprintf(text, sizeof text, ":%u", (unsigned)number_of(hosts, "port", 0)));
    free(host);
}

int main(void) {
    start();
    send_ready();
    struct frame frame = receive();
    /* The invoke is looked at until the end, and the inbox moves: keep a copy. */
    struct bytes invoke = {0};
    append(&invoke, frame.header.at, frame.header.end - frame.header.at);
    struct view header = {invoke.data, invoke.data + invoke.size}, op;
    if (!is_type(&frame, "invoke") || number_of(header, "protocol", 0) != 1) {
        send_failure("connector_runtime_error", "this connector speaks version 1 of the frames");
        return 0;
    }
    if (!find(header, "op", &op) || !find(header, "args", &arguments)) die("an invoke without op or args");
    find_first_host(header);
    for (size_t index = 0; index < sizeof OPERATIONS / sizeof *OPERATIONS; index++) {
        if (is_text(op, OPERATIONS[index].name)) {
            OPERATIONS[index].run();
            return 0;
        }
    }
    send_failure("unknown_op", "greet, fetch, upload, copy, reach_out and leave_behind are known");
    return 0;
}
