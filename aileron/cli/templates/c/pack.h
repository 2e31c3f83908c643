/* MessagePack, as much of it as frames use: write maps, read them by key.
 *
 * Source: docs/reference/frames.md and the specification it names. Not here: what the maps mean (frames.h).
 */
#ifndef PACK_H
#define PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program: what comes from the supervisor is well formed, or nothing here makes sense. */
static void die(const char *why) {
    fprintf(stderr, "connector: %s\n", why);
    exit(70);
}

struct bytes {
    unsigned char *data;
    size_t size, room;
};

static void append(struct bytes *to, const void *data, size_t size) {
    if (to->size + size > to->room) {
        to->room = (to->size + size) * 2;
        to->data = realloc(to->data, to->room);
        if (to->data == NULL) die("no memory");
    }
    if (size > 0) memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void drop_front(struct bytes *from, size_t size) {
    memmove(from->data, from->data + size, from->size - size);
    from->size -= size;
}

/* Writing. Any width is accepted, so each kind has one. */

static void big_endian(struct bytes *to, uint64_t value, int width) {
    for (int shift = (width - 1) * 8; shift >= 0; shift -= 8) append(to, &(unsigned char){value >> shift}, 1);
}

static void put_map(struct bytes *to, unsigned entries) { append(to, "\xde", 1), big_endian(to, entries, 2); }
static void put_array(struct bytes *to, unsigned items) { append(to, "\xdc", 1), big_endian(to, items, 2); }
static void put_int(struct bytes *to, uint64_t value) { append(to, "\xcf", 1), big_endian(to, value, 8); }
static void put_bool(struct bytes *to, bool value) { append(to, value ? "\xc3" : "\xc2", 1); }

static void put_text_of(struct bytes *to, const char *text, size_t size) {
    append(to, "\xdb", 1), big_endian(to, size, 4), append(to, text, size);
}

static void put_text(struct bytes *to, const char *text) { put_text_of(to, text, strlen(text)); }

/* Reading. A `view` is one value and what follows it. */

struct view {
    const unsigned char *at, *end;
};

static uint64_t take(struct view *from, int width) {
    uint64_t value = 0;
    if (from->end - from->at < width) die("a header is cut short");
    while (width-- > 0) value = value << 8 | *from->at++;
    return value;
}

/* What a value is: its kind, and its number, or how many bytes or items follow. */
enum kind { NIL, TRUTH, NUMBER, REAL, TEXT, ARRAY, MAP };

static enum kind open_value(struct view *from, uint64_t *number) {
    unsigned char head = take(from, 1);
    *number = 0;
    if (head < 0x80) return *number = head, NUMBER;
    if (head < 0x90) return *number = head & 0x0f, MAP;
    if (head < 0xa0) return *number = head & 0x0f, ARRAY;
    if (head < 0xc0) return *number = head & 0x1f, TEXT;
    if (head >= 0xe0) return *number = (uint64_t)(int64_t)(int8_t)head, NUMBER;
    switch (head) {
    case 0xc0: return NIL;
    case 0xc2: case 0xc3: return *number = head & 1, TRUTH;
    case 0xca: return *number = take(from, 4), REAL;
    case 0xcb: return *number = take(from, 8), REAL;
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return *number = take(from, 1 << (head - 0xcc)), NUMBER;
    case 0xd0: return *number = (uint64_t)(int8_t)take(from, 1), NUMBER;
    case 0xd1: return *number = (uint64_t)(int16_t)take(from, 2), NUMBER;
    case 0xd2: return *number = (uint64_t)(int32_t)take(from, 4), NUMBER;
    case 0xd3: return *number = take(from, 8), NUMBER;
    case 0xd9: case 0xda: case 0xdb: return *number = take(from, 1 << (head - 0xd9)), TEXT;
    case 0xdc: case 0xdd: return *number = take(from, 2 << (head - 0xdc)), ARRAY;
    case 0xde: case 0xdf: return *number = take(from, 2 << (head - 0xde)), MAP;
    default: die("a header has a type that no header has");
    }
    return NIL;
}

static void skip(struct view *from) {
    uint64_t number;
    enum kind kind = open_value(from, &number);
    if (kind == TEXT) {
        if (number > (uint64_t)(from->end - from->at)) die("a text is cut short");
        from->at += number;
    }
    for (uint64_t left = kind == MAP ? number * 2 : kind == ARRAY ? number : 0; left > 0; left--) skip(from);
}

static bool is_text(struct view value, const char *text) {
    uint64_t size;
    return open_value(&value, &size) == TEXT && size == strlen(text) && (uint64_t)(value.end - value.at) >= size &&
           memcmp(value.at, text, size) == 0;
}

/* The value of `key` in the map at `map`. False if it has none. */
static bool find(struct view map, const char *key, struct view *value) {
    uint64_t entries;
    if (open_value(&map, &entries) != MAP) die("a map was expected");
    while (entries-- > 0) {
        bool is_wanted = is_text(map, key);
        skip(&map);
        if (is_wanted) return *value = map, true;
        skip(&map);
    }
    return false;
}

static uint64_t number_of(struct view map, const char *key, uint64_t otherwise) {
    struct view value;
    uint64_t number;
    if (!find(map, key, &value)) return otherwise;
    enum kind kind = open_value(&value, &number);
    return kind == NUMBER || kind == TRUTH ? number : otherwise;
}

/* A copy of a text, ended by a NUL; NULL if there is none. The caller's to keep. */
static char *text_of(struct view map, const char *key) {
    struct view value;
    uint64_t size;
    if (!find(map, key, &value) || open_value(&value, &size) != TEXT) return NULL;
    if (size > (uint64_t)(value.end - value.at)) die("a text is cut short");
    return strndup((const char *)value.at, size);
}

#endif
