#include "base/error.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 2048u

static _Thread_local char text[TEXT_BYTES];    /* with code and place */
static _Thread_local char message[TEXT_BYTES]; /* for people */
static _Atomic dyti_error_put_fn forward;      /* set once, by who opened us */

struct status_row {
    enum dyt_status status;
    const char *name, *text;
    enum dyt_status_class cls;
};

static const struct status_row table[] = {
#define ROW(name, value, cls, txt) {name, #name, txt, DYT_CLASS_##cls},
    DYT_STATUS_MAP(ROW)
#undef ROW
};

static const struct status_row *find(enum dyt_status status)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].status == status) {
            return &table[i];
        }
    }
    return NULL;
}

const char *dyt_status_name(enum dyt_status status)
{
    const struct status_row *row = find(status);

    return row != NULL ? row->name : "DYT_UNKNOWN";
}

const char *dyt_status_text(enum dyt_status status)
{
    const struct status_row *row = find(status);

    return row != NULL ? row->text : "unknown status";
}

enum dyt_status_class dyt_status_class(enum dyt_status status)
{
    const struct status_row *row = find(status);

    return row != NULL ? row->cls : DYT_CLASS_RUN;
}

/* Append, cut at the end of the buffer, never wrapped. */
static void append(char *to, const char *fmt, va_list args)
{
    size_t used = strlen(to);

    if (used + 1 < TEXT_BYTES) {
        vsnprintf(to + used, TEXT_BYTES - used, fmt, args);
    }
}

static void append_text(char *to, const char *fmt, ...) DYTI_PRINTF(2, 3);
static void append_text(char *to, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    append(to, fmt, args);
    va_end(args);
}

static void tell(void)
{
    dyti_error_put_fn put =
        atomic_load_explicit(&forward, memory_order_acquire);

    if (put != NULL) {
        put(text, message);
    }
}

void dyti_error_forward(dyti_error_put_fn put)
{
    atomic_store_explicit(&forward, put, memory_order_release);
}

void dyti_error_take(const char *from_text, const char *from_message)
{
    char fresh[2][TEXT_BYTES]; /* it may be our own */

    snprintf(fresh[0], TEXT_BYTES, "%s", from_text);
    snprintf(fresh[1], TEXT_BYTES, "%s", from_message);
    memcpy(text, fresh[0], sizeof(text));
    memcpy(message, fresh[1], sizeof(message));
}

enum dyt_status dyti_error_set(const char *file, int line,
                               enum dyt_status status, const char *fmt, ...)
{
    char fresh[TEXT_BYTES] = ""; /* an argument may be the old text */
    va_list args;

    va_start(args, fmt);
    append(fresh, fmt, args);
    va_end(args);
    memcpy(message, fresh, sizeof(message));
    memcpy(text, fresh, sizeof(text));
    append_text(text, " (%s) [%s:%d]", dyt_status_name(status), file, line);
    tell();
    return status;
}

void dyti_error_note(const char *fmt, ...)
{
    char fresh[TEXT_BYTES] = "";
    va_list args;

    va_start(args, fmt);
    append(fresh, fmt, args);
    va_end(args);
    append_text(text, "; while %s", fresh);
    append_text(message, "; while %s", fresh);
    tell();
}

enum dyt_status dyti_error_adopt(enum dyt_status status, const char *from)
{
    char fresh[TEXT_BYTES] = "";

    append_text(fresh, "%s", from);
    memcpy(text, fresh, sizeof(text));
    memcpy(message, fresh, sizeof(message));
    tell();
    return status;
}

const char *dyti_error_text(void)
{
    return text;
}

const char *dyti_error_message(void)
{
    return message;
}

const char *dyt_error_text(void)
{
    return text;
}

_Noreturn void dyti_require_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "dynatrain: broken invariant: %s [%s:%d]\n", cond, file,
            line);
    abort();
}
