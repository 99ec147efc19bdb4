/* Stage 2 of 5: layout.  Answers "which parts of which tensors does this
 * process hold, and where in its memory?"
 * in: buffers that somebody else allocated   out: used by layout.h, session.h
 *
 * Terms used in every comment of this file
 *   row     one allocation, or view of one, that holds boxes of VPS tensors
 *   piece   a box of one tensor inside a row
 *   shape, stride  of the row as it lies in memory, padding included
 *
 * A row says what it holds in one of two ways: by pieces (exact, whatever the
 * framework), or by rules (rules.h) from its name and the member's place.
 */
#ifndef DYNATRAIN_VIEW_H
#define DYNATRAIN_VIEW_H

#include <dynatrain/model.h>

DYT_BEGIN_DECLS

/* Values are ABI: append, never renumber. */
enum dyt_device_type { DYT_DEVICE_HOST = 0, DYT_DEVICE_CUDA = 1 };

/** A device and the order of work on it.
 *
 * What the library does with a row of a device comes after all that is in
 * `stream` when a call is made (or after the call's event, where one is given),
 * and is done when the call returns: work of any stream that is queued then
 * finds the row as the call has left it.  The calling thread's current device
 * stays what it is. */
struct dyt_device {
    uint32_t struct_size;
    uint32_t type;    /* enum dyt_device_type */
    uint8_t uuid[16]; /* CUDA: of the device; zero: the only one that there is.
                         host: zero */
    void *stream;     /* CUDA: cudaStream_t in which the row is written and
                         read, NULL: the default one; host: NULL */
};

/* Flags of a row. */
#define DYT_ROW_READ_ONLY                                                      \
    1u /* is never written: a source only, refused where a receiver's row      \
          holds what would be written */
#define DYT_ROW_ALIAS                                                          \
    2u /* the same tensor as an earlier row (a tied head): where it is the     \
          same memory too, never moved twice */
#define DYT_ROW_STAGED                                                         \
    4u /* a receiver's, with no memory that may be written (packed weights):   \
          the library lends memory of this shape, see dyt_session_staged() */
#define DYT_ROW_OPTIONAL                                                       \
    8u /* may have no counterpart on the other side (a buffer that the         \
          trainer does not know): then it is left as it is */

/** A box of one tensor inside a row: element `lo + x` of the tensor lies at
 *  element `at + x` of the row.  Where the row has more dimensions than the
 *  tensor (stacked experts), its *leading* ones are fixed at `at`; where
 *  `transposed`, the last two of the row are the tensor's exchanged. */
struct dyt_piece {
    uint32_t struct_size;
    uint32_t transposed;      /* 0 or 1 */
    const char *tensor;       /* VPS name */
    struct dyt_box box;       /* of the tensor */
    int64_t at[DYT_MAX_DIMS]; /* [row's ndim] where it begins in the row */
};

struct dyt_row {
    uint32_t struct_size;
    uint32_t kind;    /* enum dyt_kind */
    uint32_t dtype;   /* enum dyt_dtype */
    uint32_t flags;   /* DYT_ROW_* */
    const char *name; /* the framework's own, unique in the view for its kind */
    uint32_t ndim;
    uint32_t piece_count;         /* 0: by rules */
    int64_t shape[DYT_MAX_DIMS];  /* [ndim], elements, each >= 1: leave a cut
                                     of nothing out */
    int64_t stride[DYT_MAX_DIMS]; /* [ndim], *elements*, >= 0; all 0: row-major
                                     and dense */
    void *data;                   /* first element; NULL with DYT_ROW_STAGED */
    int32_t fd; /* memfd or file that the memory is shared from, -1: none.
                   `data` may be NULL then: the library maps it.  Borrowed until
                   the session is left.  What is truncated meanwhile is
                   DYT_ERR_IO or DYT_ERR_INVALID, by name, of the call that
                   meets it.  Where the file cannot be truncated (a memfd with
                   F_SEAL_SHRINK) bytes are copied once, otherwise by way of a
                   buffer, at a third to half of the speed; the library adds no
                   seal */
    uint32_t piece_struct_size; /* sizeof(struct dyt_piece), 0 without pieces */
    uint64_t fd_offset;         /* bytes of the first element in fd */
    const struct dyt_piece *piece; /* [piece_count] */
    /* The global shape where the row is a cut of one tensor that nobody else
     * describes (ndim dims; all 0: not said).  A trainer's rows need it, as
     * they make the catalogue. */
    int64_t global_shape[DYT_MAX_DIMS];
    struct dyt_device device; /* zeroed: host */
};

/** One member's own list. */
struct dyt_view {
    uint32_t struct_size;
    uint32_t row_struct_size;  /* sizeof(struct dyt_row) */
    const struct dyt_row *row; /* [row_count], borrowed for the call */
    uint64_t row_count;
};

DYT_END_DECLS

#endif /* DYNATRAIN_VIEW_H */
