/* The text of the last failure: cause first, then outward what was going on.
 * First detection calls DYTI_FAIL, callers add DYTI_NOTE, nobody logs twice.
 * Threads: the text belongs to the thread that failed. */
#ifndef DYTI_BASE_ERROR_H
#define DYTI_BASE_ERROR_H

#include <dynatrain/status.h>

#define DYTI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Returns `status`, so it can end a function: return DYTI_FAIL(...); */
#define DYTI_FAIL(status, ...)                                                 \
    dyti_error_set(__FILE__, __LINE__, (status), __VA_ARGS__)
#define DYTI_NOTE(...) dyti_error_note(__VA_ARGS__)

enum dyt_status dyti_error_set(const char *file, int line,
                               enum dyt_status status, const char *fmt, ...)
    DYTI_PRINTF(4, 5);
void dyti_error_note(const char *fmt, ...) DYTI_PRINTF(1, 2);

/* Put a text that came from elsewhere (a peer, a plugin) in place of this
 * thread's last failure.  Returns `status`. */
enum dyt_status dyti_error_adopt(enum dyt_status status, const char *text);

/* Everything that this copy of base/ says goes to `put` besides, with and
 * without code and place: a module has a copy of its own, and whoever opens it
 * hears it so (ops/module.h).  Once, before anything of it is called. */
typedef void (*dyti_error_put_fn)(const char *text, const char *message);
void dyti_error_forward(dyti_error_put_fn put);
/* What such a copy says becomes this thread's last failure. */
void dyti_error_take(const char *text, const char *message);

/* Same as dyt_error_text(). */
const char *dyti_error_text(void);

/* The text without "(DYT_ERR_X) [file:line]": what a user is shown. */
const char *dyti_error_message(void);

/* Our own mistakes only, never input: dyti_assert in debug builds,
 * dyti_require always. */
#define dyti_require(cond)                                                     \
    ((cond) ? (void)0 : dyti_require_failed(#cond, __FILE__, __LINE__))
#ifdef NDEBUG
#define dyti_assert(cond) ((void)sizeof(cond))
#else
#define dyti_assert(cond) dyti_require(cond)
#endif
_Noreturn void dyti_require_failed(const char *cond, const char *file,
                                   int line);

#endif /* DYTI_BASE_ERROR_H */
