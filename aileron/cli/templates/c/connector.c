/* %%title%%: list things. `make` builds it.
 *
 * It is started for one operation: it reads one `invoke`, asks the supervisor to send its requests, and ends with one `result` or
 * `failure`. It has no socket, no file and no key. Not here: frames (frames.h), MessagePack (pack.h).
 */
#define _GNU_SOURCE
#include "frames.h"

enum { MOST = 32 << 10 }; /* bytes of an answer: with what is around it, it fits into the header of one frame */

static struct view arguments; /* of the invocation */
static char *origin;          /* "https://host:port" of the first host that is granted */

/* The whole body of the answer to request `id`; false when there is none, and the failure was sent. */
static bool read_answer(uint64_t id, struct bytes *body) {
    uint64_t status = 0;
    for (;;) {
        struct frame frame = receive();
        if (number_of(frame.header, "id", 0) != id) continue;
        if (is_type(&frame, "refused")) return send_failure("network_error", "the service cannot be reached"), false;
        if (is_type(&frame, "http_head")) {
            status = number_of(frame.header, "status", 0);
            continue;
        }
        append(body, frame.body, frame.body_size);
        if (body->size > MOST) return send_failure("external_api_error", "the answer is too large"), false;
        if (number_of(frame.header, "end", 0)) break;
    }
    if (status != 200) return send_failure("external_api_error", "the service answered with an error"), false;
    return true;
}

/* The latest things, as the service has them. */
static void list_things(void) {
    struct bytes body = {0}, output = {0};
    uint64_t limit = number_of(arguments, "limit", 10);
    char *url;
    if (asprintf(&url, "%s/things?limit=%llu", origin, (unsigned long long)limit) < 0) die("no memory");
    send_request(1, "GET", url, "api_key", false);
    if (!read_answer(1, &body)) return;
    put_map(&output, 1);
    put_text(&output, "things"), put_text_of(&output, (const char *)body.data, body.size);
    send_result(&output);
}

static const struct {
    const char *name;
    void (*run)(void);
} OPERATIONS[] = {{"list_things", list_things}};

static char *first_origin(struct view invoke) {
    struct view hosts;
    uint64_t count;
    char *text, *host;
    if (!find(invoke, "hosts", &hosts) || open_value(&hosts, &count) != ARRAY || count == 0) die("no host is granted");
    host = text_of(hosts, "host");
    const char *scheme = number_of(hosts, "plain", 0) ? "http" : "https";
    if (asprintf(&text, "%s://%s:%llu", scheme, host, (unsigned long long)number_of(hosts, "port", 443)) < 0) die("no memory");
    free(host);
    return text;
}

int main(void) {
    start();
    struct frame frame = receive();
    /* The invoke is looked at until the end, and the inbox moves: keep a copy. */
    struct bytes invoke = {0};
    append(&invoke, frame.header.at, frame.header.end - frame.header.at);
    struct view header = {invoke.data, invoke.data + invoke.size}, op;
    if (number_of(header, "protocol", 0) != 1 || !find(header, "op", &op) || !find(header, "args", &arguments)) {
        send_failure("connector_runtime_error", "this connector speaks version 1 of the frames");
        return 0;
    }
    origin = first_origin(header);
    for (size_t index = 0; index < sizeof OPERATIONS / sizeof *OPERATIONS; index++) {
        if (is_text(op, OPERATIONS[index].name)) {
            OPERATIONS[index].run();
            return 0;
        }
    }
    send_failure("unknown_op", "list_things is known");
    return 0;
}
