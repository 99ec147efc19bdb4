/* What a call can answer.  One table makes enum, names, texts and docs. */
#ifndef DYNATRAIN_STATUS_H
#define DYNATRAIN_STATUS_H

#include <dynatrain/api.h>

DYT_BEGIN_DECLS

/* One row per status: name, value, class, text.  Values are ABI: append, never
 * renumber.  Class tells the caller what it may still do:
 *   OK      nothing went wrong          CALLER  fix the arguments
 *   RETRY   same call may work later    RUN     this run is lost, process fine
 *   RANK    this rank must leave the job */
/* clang-format off */
#define DYT_STATUS_MAP(X)                                                      \
    X(DYT_OK,                0, OK,     "success")                             \
    X(DYT_PENDING,           1, RETRY,  "not finished yet")                    \
    X(DYT_ERR_INVALID,      -1, CALLER, "invalid argument")                    \
    X(DYT_ERR_OVERFLOW,     -2, CALLER, "size does not fit")                   \
    X(DYT_ERR_LAYOUT,       -3, CALLER, "the layout cannot be built or met")   \
    X(DYT_ERR_NOMEM,        -4, RUN,    "out of memory")                       \
    X(DYT_ERR_PEER,         -5, RUN,    "a peer failed or went away")          \
    X(DYT_ERR_ABI,          -6, CALLER, "plugin was built for another ABI")    \
    X(DYT_ERR_DEVICE,       -7, RANK,   "device error")                        \
    X(DYT_ERR_FORMAT,       -8, CALLER, "a file or message is malformed")      \
    X(DYT_ERR_CONFIG,       -9, CALLER, "the configuration is wrong")          \
    X(DYT_ERR_UNSUPPORTED, -10, CALLER, "not available")                       \
    X(DYT_ERR_IO,          -11, RUN,    "input/output failed")                 \
    X(DYT_ERR_STATE,       -12, CALLER, "not allowed in this state")           \
    X(DYT_ERR_BUSY,        -13, RETRY,  "held by somebody else")               \
    X(DYT_ERR_TIMEOUT,     -14, RUN,    "deadline passed")                     \
    X(DYT_ERR_VERIFY,      -15, RUN,    "content does not match")              \
    X(DYT_ERR_CANCELLED,   -16, RUN,    "stopped on request")
/* clang-format on */

#define DYT_STATUS_ENUM(name, value, cls, text) name = value,
enum dyt_status { DYT_STATUS_MAP(DYT_STATUS_ENUM) };
#undef DYT_STATUS_ENUM

enum dyt_status_class {
    DYT_CLASS_OK,
    DYT_CLASS_RETRY,
    DYT_CLASS_CALLER,
    DYT_CLASS_RUN,
    DYT_CLASS_RANK
};

/** "DYT_ERR_LAYOUT"; "DYT_UNKNOWN" for a value outside the table.  Static. */
DYT_API const char *dyt_status_name(enum dyt_status status);

/** One English phrase, lower case, no full stop.  Static. */
DYT_API const char *dyt_status_text(enum dyt_status status);

/** What the caller may still do.  DYT_CLASS_RUN for an unknown value. */
DYT_API enum dyt_status_class dyt_status_class(enum dyt_status status);

/**
 * "<cause> (DYT_ERR_X) [file:line]; while <inner>; while <outer>" of the last
 * failure on this thread; "" if there was none.  Valid until this thread's next
 * failure.
 */
DYT_API const char *dyt_error_text(void);

/** Give back a text that the library made.  NULL is allowed. */
DYT_API void dyt_text_free(char *text);

DYT_END_DECLS

#endif /* DYNATRAIN_STATUS_H */
