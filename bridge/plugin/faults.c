#include "plugin/faults.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dyti_found_add(struct dyti_found *found, enum dyt_status status,
                    const char *fmt, ...)
{
    size_t room = sizeof(found->text) - found->used;
    size_t head = found->used > 0 ? 2 : 0;
    va_list args;
    int length;

    if (found->count++ == 0) {
        found->status = status;
    }
    if (found->count > DYTI_FAULTS_SHOWN || room <= head + 1) {
        return;
    }
    if (head > 0) {
        memcpy(found->text + found->used, "; ", 3);
    }
    va_start(args, fmt);
    length =
        vsnprintf(found->text + found->used + head, room - head, fmt, args);
    va_end(args);
    if (length < 0 || (size_t)length >= room - head) {
        /* Half a fault says nothing: it counts among the rest. */
        found->text[found->used] = '\0';
        return;
    }
    found->used += head + (size_t)length;
    found->shown++;
}

enum dyt_status dyti_found_finish(const struct dyti_found *found,
                                  const char *remark)
{
    char rest[48] = "";

    if (found->count == 0) {
        return DYT_OK;
    }
    if (found->count > found->shown) {
        (void)snprintf(rest, sizeof(rest), "%s%u more",
                       found->shown > 0 ? "; and " : "",
                       found->count - found->shown);
    }
    return DYTI_FAIL(found->status, "%s%s%s%s", found->text, rest,
                     remark == NULL ? "" : "; ", remark == NULL ? "" : remark);
}

struct dyti_shape_words dyti_shape_words(uint32_t ndim, const int64_t *shape)
{
    struct dyti_shape_words words = {"["};
    size_t used = 1;

    for (uint32_t d = 0; d < ndim && used + 24 < sizeof(words.text); d++) {
        used += (size_t)snprintf(words.text + used, sizeof(words.text) - used,
                                 "%s%" PRId64, d == 0 ? "" : ", ", shape[d]);
    }
    words.text[used] = ']';
    words.text[used + 1] = '\0';
    return words;
}
