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

/* What a sample may draw of a tensor (ops/sample.h).  Tensors of one shape
 * share theirs. */
struct dyti_verify_lattice {
    int64_t step[DYTI_VERIFY_DIMS], count[DYTI_VERIFY_DIMS];
    int64_t starts[DYTI_VERIFY_DIMS];
};

/* A box of own memory to hash; dims from slow to fast, unused ones have size 1.
 */
struct dyti_verify_piece {
    struct dyti_hash_box box;     /* whole; its index is that of element 0 */
    int64_t lo[DYTI_VERIFY_DIMS]; /* of the tensor, elements */
    uint32_t tensor;
    uint32_t word; /* of this rank's part of the vector, where its sum goes */
    uint32_t lattice[2]; /* [full] of verifier->lattice */
    uint8_t as;          /* the dtype that the destination stores it in */
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
    struct dyti_verify_lattice *lattice; /* [lattice_count], owned */
    size_t lattice_count, lattice_cap;
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
    struct dyti_hash_box *box; /* [piece_count] */
    uint32_t *box_word;        /* [piece_count] */
    uint64_t *box_hash;        /* [piece_count] */
    unsigned char *narrowed;   /* [DYTI_VERIFY_SCRATCH_BYTES] */
};

#define DYTI_VERIFY_SCRATCH_BYTES (256u << 10)

/* verify_lattice.c: that of a tensor, in verifier->lattice. */
enum dyt_status dyti_verify_find_lattice(struct dyti_verifier *verifier,
                                         const struct dyti_tensor *tensor,
                                         bool full, uint32_t *out_index);

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
