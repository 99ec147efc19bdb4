/* Does the destination hold what the sources hold?  Content hashes that do not
 * depend on the layout (base/hash.h): each rank hashes its own shards, one
 * all-gather carries the sums, every rank compares all of them.
 *
 *   of the destination  one sum per atom that the rank holds: holders of an
 *                       atom must agree
 *   of the sources      one sum per tensor, over the atoms that this rank
 *                       answers for, of the bits as the destination would
 *                       store them
 *
 * and over all ranks the atoms of a tensor (each counted once) must sum to what
 * its sources sum to.  A sample takes every 128th row (or element) of a tensor,
 * another set each epoch, the same set on all ranks. */
#ifndef DYTI_EXEC_VERIFY_H
#define DYTI_EXEC_VERIFY_H

#include "exec/atoms.h"
#include "ops/group.h"
#include "ops/kernels.h"
#include "ops/memory.h"
#include "ops/sample.h"
#include "plan/plan.h"

#define DYTI_VERIFY_DIMS DYTI_COPY_DIMS

/* A box of own memory to hash.  What it shares with others is its form: most
 * pieces are equal parts of equal tensors. */
struct dyti_verify_piece {
    const unsigned char *data;
    uint64_t salt;
    uint32_t tensor;
    uint32_t word; /* of this rank's part of the vector, where its sum goes */
    uint32_t form[2]; /* [full] of verifier->form */
};

/* One kind of the destination. */
struct dyti_verify_want {
    struct dyti_atoms atoms;
    /* What a comparison reads of them; owned. */
    uint64_t *word;  /* [atoms.holder_count]: of the vector, where each holder
                        puts its sum */
    uint32_t *first; /* [atoms.atom_count + 1]: of its holders */
    uint32_t *end;   /* [tensor_count]: the first atom behind a tensor's */
    uint8_t kind;
};

/* Boxes that were drawn and wait for their hash. */
#define DYTI_VERIFY_BATCH 256u

struct dyti_verify_batch {
    struct dyti_hash_box *box; /* [DYTI_VERIFY_BATCH] each, owned */
    uint64_t *hash;
    uint32_t *word; /* of this rank's part of the vector */
};

struct dyti_verifier {
    const struct dyti_model *model; /* borrowed */
    uint32_t rank, world_size;
    struct dyti_kernels kernels;
    const struct dyti_memory_ops *memory; /* NULL: of no device */
    struct dyti_verify_want *want;        /* [want_count], owned */
    uint32_t want_count;
    struct dyti_verify_piece *piece; /* [piece_count], owned */
    size_t piece_count, piece_cap;
    size_t source_first; /* pieces from here on are of the sources */
    /* Without data, salt and key: those are of the piece.  Dims from slow to
     * fast, unused ones have size 1. */
    struct dyti_sample_form *form; /* [form_count], owned */
    size_t form_count, form_cap;
    bool has_sources; /* they are hashed already: consumed by the next run */
    /* What a device is given once: [full][of the sources]; made when it is
     * first asked for, NULL before, and where there is no such thing. */
    struct dyti_sample_list *list[2][2];
    /* The vector: rank r has words [first[r], first[r+1]); its word 0 is its
     * status, the last want_count * tensor_count are its sources' sums. */
    uint64_t *first;        /* [world_size + 1], owned */
    uint64_t *counts_bytes; /* [world_size], owned */
    uint64_t *vector;       /* owned */
    /* Scratch of a run: owned. */
    struct dyti_verify_batch batch;
    uint64_t *list_hash;     /* [piece_count], of a device's list */
    unsigned char *narrowed; /* [DYTI_VERIFY_SCRATCH_BYTES] */
};

#define DYTI_VERIFY_SCRATCH_BYTES (256u << 10)

/* verify_form.c: of a piece that is `piece` without its data and salt, from
 * `lo` of the tensor on and stored as `as` by the destination. */
enum dyt_status dyti_verify_find_form(struct dyti_verifier *verifier,
                                      const struct dyti_tensor *tensor,
                                      const struct dyti_hash_box *box,
                                      const int64_t lo[DYTI_VERIFY_DIMS],
                                      uint8_t as, bool full,
                                      uint32_t *out_index);

/* Where byte `offset` of the own region (slot, kind) is here. */
typedef unsigned char *(*dyti_verify_region_fn)(const void *arg, uint32_t slot,
                                                uint32_t kind, uint64_t offset);

/* Prepare for a plan's inputs, once.  memory: of the kernels' device, where
 * regions lie there; NULL: ordinary memory.  Borrowed until fini. */
enum dyt_status dyti_verifier_init(struct dyti_verifier *verifier,
                                   const struct dyti_plan_inputs *inputs,
                                   uint32_t rank,
                                   const struct dyti_kernels *kernels,
                                   const struct dyti_memory_ops *memory,
                                   dyti_verify_region_fn region,
                                   const void *region_arg);
void dyti_verifier_fini(struct dyti_verifier *verifier);

/* Hash this rank's part of the sources now, because the run will not find them
 * any more; the next run takes it from here. */
enum dyt_status dyti_verifier_sources(struct dyti_verifier *verifier, bool full,
                                      uint64_t seed);

/* Collective.  `mine`: how this rank's transfer ended; it takes part in any
 * case.  seed: of the sample; full: everything.  *out_bytes: hashed here.
 * DYT_ERR_VERIFY  names tensor, kind and ranks
 * DYT_ERR_PEER    another rank's transfer failed */
enum dyt_status dyti_verifier_run(struct dyti_verifier *verifier,
                                  const struct dyti_group *all, bool full,
                                  uint64_t seed, enum dyt_status mine,
                                  uint64_t *out_bytes);

#endif /* DYTI_EXEC_VERIFY_H */
