/* Were rows of a device written while others read them?  Their content hashes,
 * before and after, by the device. */
#include "lib/mirror_internal.h"

#include "base/rng.h"

/* Boxes of one device, in one go. */
static enum dyt_status hash_device(struct dyti_mirror *m, uint32_t device,
                                   bool full, uint32_t kinds, uint64_t *out)
{
    const struct dyti_kernels *k = &m->devices->device[device].kernels;
    size_t count = 0, at = 0;
    enum dyt_status st;

    for (size_t i = 0; i < m->hash_count; i++) {
        const struct dyti_mirror_hash *h = &m->hash[i];

        if (h->device == device && (kinds >> h->kind & 1u) != 0) {
            m->use[count] = full ? h->box
                                 : dyti_hash_box_sample(
                                       &h->box, dyti_rng_u64(m->seal, i, 0, 0));
            m->sum[count++] = 0;
        }
    }
    st = count == 0 ? DYT_OK : k->ops->hash(k->self, m->use, count, m->sum);
    for (size_t i = 0; i < m->hash_count; i++) {
        const struct dyti_mirror_hash *h = &m->hash[i];

        if (h->device == device && (kinds >> h->kind & 1u) != 0) {
            out[i] = m->sum[at++];
        }
    }
    return st;
}

/* Under the lock.  Of these kinds. */
static enum dyt_status hash_rows(struct dyti_mirror *m, bool full,
                                 uint32_t kinds, uint64_t *out)
{
    enum dyt_status st = dyti_mirror_look(m);

    for (uint32_t d = 0; d < m->devices->count && st == DYT_OK; d++) {
        st = hash_device(m, d, full, kinds, out);
    }
    return st;
}

enum dyt_status dyti_mirror_seal(struct dyti_mirror *m, bool full,
                                 uint64_t seed)
{
    enum dyt_status st;

    pthread_mutex_lock(&m->devices->lock);
    m->seal = seed;
    st = hash_rows(m, full, DYTI_LINK_KINDS_ALL, m->taken);
    pthread_mutex_unlock(&m->devices->lock);
    return st;
}

enum dyt_status dyti_mirror_check_seal(struct dyti_mirror *m, bool full,
                                       const struct dyti_model *catalogue,
                                       uint32_t kinds)
{
    enum dyt_status st;

    pthread_mutex_lock(&m->devices->lock);
    st = hash_rows(m, full, kinds, m->now);
    for (size_t i = 0; i < m->hash_count && st == DYT_OK; i++) {
        const struct dyti_mirror_hash *h = &m->hash[i];

        if ((kinds >> h->kind & 1u) != 0 && m->now[i] != m->taken[i]) {
            st = DYTI_FAIL(DYT_ERR_VERIFY, "%s of tensor %s was written",
                           dyti_kind_name((enum dyti_kind)h->kind),
                           catalogue->tensor[h->tensor].name);
        }
    }
    pthread_mutex_unlock(&m->devices->lock);
    return st;
}
