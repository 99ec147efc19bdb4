/* Interns sets of ranks by a hash of their members. */
#include "plan/sets.h"

#include "base/array.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum dyt_status dyti_sets_init(struct dyti_sets *sets, const uint32_t *host,
                               uint32_t world_size)
{
    *sets = (struct dyti_sets){.host = host, .world_size = world_size};
    sets->scratch = calloc(2 * (size_t)world_size + 1, sizeof(*sets->scratch));
    sets->slot_count = 256;
    sets->slot = calloc(sets->slot_count, sizeof(*sets->slot));
    if (sets->scratch == NULL || sets->slot == NULL) {
        dyti_sets_fini(sets);
        return DYTI_FAIL(DYT_ERR_NOMEM, "sets of %u ranks", world_size);
    }
    return DYT_OK;
}

void dyti_sets_fini(struct dyti_sets *sets)
{
    free(sets->set);
    free(sets->rank);
    free(sets->run);
    free(sets->slot);
    free(sets->scratch);
    *sets = (struct dyti_sets){0};
}

/* ---- order -------------------------------------------------------------- */

static bool is_before(const struct dyti_sets *sets, uint32_t a, uint32_t b)
{
    return sets->host[a] != sets->host[b] ? sets->host[a] < sets->host[b]
                                          : a < b;
}

static void sift(const struct dyti_sets *sets, uint32_t *rank, uint32_t at,
                 uint32_t count)
{
    for (;;) {
        uint32_t child = 2 * at + 1, keep = rank[at];

        if (child >= count) {
            return;
        }
        if (child + 1 < count &&
            is_before(sets, rank[child], rank[child + 1])) {
            child++;
        }
        if (!is_before(sets, rank[at], rank[child])) {
            return;
        }
        rank[at] = rank[child];
        rank[child] = keep;
        at = child;
    }
}

/* By host, then rank: nothing to do where hosts are numbered like ranks. */
static void sort(const struct dyti_sets *sets, uint32_t *rank, uint32_t count)
{
    bool sorted = true;

    for (uint32_t i = 1; i < count && sorted; i++) {
        sorted = is_before(sets, rank[i - 1], rank[i]);
    }
    if (sorted) {
        return;
    }
    for (uint32_t i = count / 2; i-- > 0;) {
        sift(sets, rank, i, count);
    }
    for (uint32_t end = count; end-- > 1;) {
        uint32_t top = rank[0];

        rank[0] = rank[end];
        rank[end] = top;
        sift(sets, rank, 0, end);
    }
}

/* ---- table -------------------------------------------------------------- */

static enum dyt_status grow_table(struct dyti_sets *sets)
{
    size_t count = sets->slot_count * 2;
    uint32_t *slot;

    if (sets->set_count * 2 < sets->slot_count) {
        return DYT_OK;
    }
    slot = calloc(count, sizeof(*slot));
    if (slot == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a table of %zu sets", count);
    }
    for (size_t s = 0; s < sets->set_count; s++) {
        size_t at = (size_t)sets->set[s].hash & (count - 1);

        while (slot[at] != 0) {
            at = (at + 1) & (count - 1);
        }
        slot[at] = (uint32_t)s + 1;
    }
    free(sets->slot);
    sets->slot = slot;
    sets->slot_count = count;
    return DYT_OK;
}

/* Intern the sorted ranks. */
static enum dyt_status intern(struct dyti_sets *sets, const uint32_t *rank,
                              uint32_t count, uint32_t *out_set)
{
    uint64_t hash = DYTI_FINGERPRINT_SEED;
    size_t at;
    enum dyt_status st = grow_table(sets);

    for (uint32_t i = 0; i < count; i++) {
        hash = dyti_fingerprint_u64(hash, rank[i]);
    }
    for (at = (size_t)hash & (sets->slot_count - 1);
         st == DYT_OK && sets->slot[at] != 0;
         at = (at + 1) & (sets->slot_count - 1)) {
        const struct dyti_rank_set *s = &sets->set[sets->slot[at] - 1];

        if (s->hash == hash && s->count == count &&
            memcmp(sets->rank + s->first, rank, count * sizeof(*rank)) == 0) {
            *out_set = sets->slot[at] - 1;
            return DYT_OK;
        }
    }
    st = st != DYT_OK
             ? st
             : DYTI_GROW(sets->rank, sets->rank_cap, sets->rank_count + count);
    st = st != DYT_OK
             ? st
             : DYTI_GROW(sets->set, sets->set_cap, sets->set_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    memcpy(sets->rank + sets->rank_count, rank, count * sizeof(*rank));
    sets->set[sets->set_count] = (struct dyti_rank_set){
        .first = sets->rank_count, .count = count, .hash = hash};
    sets->rank_count += count;
    sets->slot[at] = (uint32_t)sets->set_count + 1;
    *out_set = (uint32_t)sets->set_count++;
    return DYT_OK;
}

enum dyt_status dyti_sets_intern(struct dyti_sets *sets, const uint32_t *rank,
                                 uint32_t count, uint32_t *out_set)
{
    if (count > sets->world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a set of %u of %u ranks", count,
                         sets->world_size);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (rank[i] >= sets->world_size) {
            return DYTI_FAIL(DYT_ERR_INVALID, "rank %u in a world of %u",
                             rank[i], sets->world_size);
        }
        sets->scratch[i] = rank[i];
    }
    sort(sets, sets->scratch, count);
    return intern(sets, sets->scratch, count, out_set);
}

enum dyt_status dyti_sets_union(struct dyti_sets *sets, uint32_t a, uint32_t b,
                                uint32_t *out_set)
{
    const uint32_t *x = dyti_sets_ranks(sets, a), *y = dyti_sets_ranks(sets, b);
    uint32_t xs = dyti_sets_count(sets, a), ys = dyti_sets_count(sets, b);
    uint32_t i = 0, j = 0, count = 0;

    if (a == b) {
        *out_set = a;
        return DYT_OK;
    }
    while (i < xs || j < ys) {
        uint32_t next;

        if (j == ys || (i < xs && is_before(sets, x[i], y[j]))) {
            next = x[i++];
        } else {
            i += i < xs && x[i] == y[j];
            next = y[j++];
        }
        sets->scratch[count++] = next;
    }
    return intern(sets, sets->scratch, count, out_set);
}

enum dyt_status dyti_sets_split(struct dyti_sets *sets, uint32_t set)
{
    size_t first = sets->set[set].first, run_first = sets->run_count;
    uint32_t count = sets->set[set].count, i = 0;

    if (sets->set[set].run_count > 0) {
        return DYT_OK;
    }
    while (i < count) {
        uint32_t host = sets->host[sets->rank[first + i]], end = i + 1;
        enum dyt_status st;

        while (end < count && sets->host[sets->rank[first + end]] == host) {
            end++;
        }
        st = DYTI_GROW(sets->run, sets->run_cap, sets->run_count + 1);
        if (st != DYT_OK) {
            return st;
        }
        sets->run[sets->run_count++] = (struct dyti_host_run){
            .host = host, .first = i, .count = end - i, .set = set};
        i = end;
    }
    sets->set[set].run_first = run_first;
    sets->set[set].run_count = (uint32_t)(sets->run_count - run_first);
    for (uint32_t r = 0;
         sets->set[set].run_count > 1 && r < sets->set[set].run_count; r++) {
        struct dyti_host_run run = sets->run[run_first + r];
        uint32_t part;
        enum dyt_status st;

        memcpy(sets->scratch, sets->rank + first + run.first,
               run.count * sizeof(*sets->scratch));
        st = intern(sets, sets->scratch, run.count, &part);
        if (st != DYT_OK) {
            return st;
        }
        sets->run[run_first + r].set = part;
    }
    return DYT_OK;
}
