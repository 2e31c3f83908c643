/* The connector's end of the frames: read them, write them, without ever waiting for only one of the two.
 *
 * Source: docs/reference/frames.md, version 1. Not here: MessagePack (pack.h), what the operations do (connector.c).
 */
#ifndef FRAMES_H
#define FRAMES_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "pack.h"

enum { FROM_SUPERVISOR = 3, TO_SUPERVISOR = 4, PREFIX = 8, MAX_BODY = 1 << 20 };

static struct bytes inbox; /* what has come and was not looked at */

/* One frame. `header` and `body` point into the inbox until the next call of `receive`. */
struct frame {
    struct view header;
    const unsigned char *body;
    size_t body_size;
};

static void take_in(void) {
    static unsigned char piece[1 << 16];
    ssize_t size = read(FROM_SUPERVISOR, piece, sizeof piece);
    if (size == 0) die("the supervisor has closed its end");
    if (size < 0 && errno != EAGAIN && errno != EINTR) die("cannot read");
    if (size > 0) append(&inbox, piece, size);
}

static void wait_for(short events) {
    struct pollfd both[] = {{FROM_SUPERVISOR, POLLIN, 0}, {TO_SUPERVISOR, events, 0}};
    if (poll(both, events ? 2 : 1, -1) < 0 && errno != EINTR) die("cannot wait");
    if (both[0].revents) take_in();
}

static void start(void) {
    fcntl(FROM_SUPERVISOR, F_SETFL, O_NONBLOCK);
    fcntl(TO_SUPERVISOR, F_SETFL, O_NONBLOCK);
}

static void write_all(const unsigned char *data, size_t size) {
    while (size > 0) {
        ssize_t written = write(TO_SUPERVISOR, data, size);
        if (written < 0 && errno != EAGAIN && errno != EINTR) die("cannot write");
        if (written < 0) wait_for(POLLOUT);
        else data += written, size -= written;
    }
}

static void send_frame(const struct bytes *header, const void *body, size_t body_size) {
    struct bytes frame = {0};
    big_endian(&frame, header->size, 4), big_endian(&frame, body_size, 4);
    append(&frame, header->data, header->size);
    write_all(frame.data, frame.size);
    write_all(body, body_size);
    free(frame.data);
}

static uint32_t length_at(size_t offset) {
    struct view view = {inbox.data + offset, inbox.data + inbox.size};
    return take(&view, 4);
}

/* The next frame, waited for. */
static struct frame receive(void) {
    static size_t last; /* of the frame that was given out before */
    drop_front(&inbox, last);
    last = 0;
    while (inbox.size < PREFIX || inbox.size < PREFIX + (size_t)length_at(0) + length_at(4)) wait_for(0);
    struct frame frame;
    frame.header = (struct view){inbox.data + PREFIX, inbox.data + PREFIX + length_at(0)};
    frame.body = frame.header.end;
    frame.body_size = length_at(4);
    last = PREFIX + (size_t)length_at(0) + frame.body_size;
    return frame;
}

static bool is_type(const struct frame *frame, const char *type) {
    struct view value;
    return find(frame->header, "type", &value) && is_text(value, type);
}

/* Messages of the connector. */

/* `credential` is the kind to be added on the way out, or NULL for none. */
static void send_request(uint64_t id, const char *method, const char *url, const char *credential, bool is_streamed) {
    struct bytes header = {0};
    put_map(&header, credential ? 7 : 6);
    if (credential) put_text(&header, "credential"), put_text(&header, credential);
    put_text(&header, "type"), put_text(&header, "http");
    put_text(&header, "id"), put_int(&header, id);
    put_text(&header, "method"), put_text(&header, method);
    put_text(&header, "url"), put_text(&header, url);
    put_text(&header, "headers"), put_array(&header, 1), put_array(&header, 2);
    put_text(&header, "content-type"), put_text(&header, "application/octet-stream");
    put_text(&header, "body"), put_text(&header, is_streamed ? "stream" : "none");
    send_frame(&header, NULL, 0);
    free(header.data);
}

static void send_chunk(uint64_t id, const void *data, size_t size, bool is_last) {
    struct bytes header = {0};
    put_map(&header, 3);
    put_text(&header, "type"), put_text(&header, "chunk");
    put_text(&header, "id"), put_int(&header, id);
    put_text(&header, "end"), put_bool(&header, is_last);
    send_frame(&header, data, size);
    free(header.data);
}

/* What does not depend on the invocation is done: from the second run on, one that waits may be there before it is wanted. The first
 * frame, and in one write. */
static void send_ready(void) {
    struct bytes header = {0};
    put_map(&header, 1);
    put_text(&header, "type"), put_text(&header, "ready");
    send_frame(&header, NULL, 0);
    free(header.data);
}

static void send_log(const char *message) {
    struct bytes header = {0};
    put_map(&header, 3);
    put_text(&header, "type"), put_text(&header, "log");
    put_text(&header, "level"), put_text(&header, "info");
    put_text(&header, "message"), put_text(&header, message);
    send_frame(&header, NULL, 0);
    free(header.data);
}

/* `output` is a packed value. The last frame. */
static void send_result(const struct bytes *output) {
    struct bytes header = {0};
    put_map(&header, 2);
    put_text(&header, "type"), put_text(&header, "result");
    put_text(&header, "output"), append(&header, output->data, output->size);
    send_frame(&header, NULL, 0);
    free(header.data);
}

static void send_failure(const char *class, const char *message) {
    struct bytes header = {0};
    put_map(&header, 3);
    put_text(&header, "type"), put_text(&header, "failure");
    put_text(&header, "class"), put_text(&header, class);
    put_text(&header, "message"), put_text(&header, message);
    send_frame(&header, NULL, 0);
    free(header.data);
}

#endif
