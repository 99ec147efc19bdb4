#include "cli/read_all.h"

#include "base/array.h"

#include <errno.h>
#include <string.h>

enum dyt_status dyti_read_all(FILE *from, const char *what, char **out_text,
                              size_t *out_bytes)
{
    char *text = NULL;
    size_t count = 0, cap = 0, got;
    enum dyt_status st;

    do {
        st = DYTI_GROW(text, cap, count + 65536);
        if (st != DYT_OK) {
            free(text);
            return st;
        }
        got = fread(text + count, 1, cap - count - 1, from);
        count += got;
    } while (got > 0 && count <= DYTI_READ_ALL_MAX);
    if (ferror(from) || count > DYTI_READ_ALL_MAX) {
        free(text);
        return count > DYTI_READ_ALL_MAX
                   ? DYTI_FAIL(DYT_ERR_INVALID, "%s is longer than %u bytes",
                               what, DYTI_READ_ALL_MAX)
                   : DYTI_FAIL(DYT_ERR_IO, "reading %s: %s", what,
                               strerror(errno));
    }
    text[count] = '\0';
    *out_text = text;
    *out_bytes = count;
    return DYT_OK;
}
