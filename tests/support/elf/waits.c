/* Says that it is ready, does EARLY before anybody tells it anything, and gives back what it is told. */
#include <stdio.h>
#include <unistd.h>

#ifndef IS_SILENT
#define IS_SILENT 0
#endif

static const unsigned char READY[] = {0, 0, 0, 12, 0, 0, 0, 0, 0x81, 0xa4, 't', 'y', 'p', 'e', 0xa5, 'r', 'e', 'a', 'd', 'y'};

static void say(const void *data, size_t size) {
    if (write(4, data, size) != (ssize_t)size) _exit(1);
}

int main(void) {
    char told[100];
    if (!IS_SILENT) say(READY, sizeof READY);
    EARLY;
    ssize_t size = read(3, told, sizeof told);
    if (size > 0) say(told, size);
    return 0;
}
