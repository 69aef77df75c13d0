/* Unpacks a picture: each run is a count (two bytes) and a pixel. Nothing checks that the runs fit into `pixels`. */
#include <stddef.h>
#include <string.h>

size_t unpack(const unsigned char *runs, size_t length, unsigned char *pixels) {
    size_t at = 0;
    for (size_t i = 0; i + 3 <= length; i += 3) {
        size_t count = runs[i] | runs[i + 1] << 8;
        memset(pixels + at, runs[i + 2], count);
        at += count;
    }
    return at;
}
