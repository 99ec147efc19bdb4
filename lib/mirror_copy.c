/* What runs in a mirror: copies to and from devices, and hashes. */
#include "lib/mirror_internal.h"

#include "exec/pack.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- lists ----------------------------------------------------------------
 */

static enum dyt_status upload(const struct dyti_kernels *k,
                              struct dyti_mirror_way *way)
{
    return way->count == 0
               ? DYT_OK
               : k->ops->list_make(k->self, way->copy, way->count, &way->list);
}

static enum dyt_status upload_all(struct dyti_mirror *m)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < m->devices->count && st == DYT_OK && m->pinned;
         i++) {
        const struct dyti_kernels *k = &m->devices->device[i].kernels;

        st = upload(k, &m->part[i].take);
        st = st != DYT_OK ? st : upload(k, &m->part[i].give);
        st = st != DYT_OK ? st : dyti_kernels_wait(k);
    }
    return st;
}

enum dyt_status dyti_mirror_upload_pads(struct dyti_mirror *m)
{
    enum dyt_status st = DYT_OK;

    pthread_mutex_lock(&m->devices->lock);
    for (size_t i = 0; i < m->devices->count && st == DYT_OK; i++) {
        const struct dyti_kernels *k = &m->devices->device[i].kernels;

        st = upload(k, &m->part[i].pads);
        st = st != DYT_OK ? st : dyti_kernels_wait(k);
    }
    pthread_mutex_unlock(&m->devices->lock);
    return st;
}

/* ---- wake -----------------------------------------------------------------
 */

/* Pinned, or beside a buffer that is. */
static void pin(struct dyti_mirror *m)
{
    const struct dyti_memory_ops *memory = m->devices->module->memory;

    m->pinned = m->segment.base != NULL && memory->host_pin != NULL &&
                memory->host_pin(m->segment.base, m->segment.bytes) == DYT_OK;
}

static enum dyt_status wake(struct dyti_mirror *m)
{
    const struct dyti_memory_ops *memory = m->devices->module->memory;
    enum dyt_status st =
        m->segment.base == NULL
            ? DYT_OK
            : memory->use(dyti_device_uuid(&m->devices->device[0]));

    if (st == DYT_OK && !m->pinned) {
        pin(m);
    }
    if (st == DYT_OK && m->segment.base != NULL && !m->pinned &&
        m->chunk == NULL) {
        st = memory->host_alloc(DYTI_MIRROR_CHUNK, &m->chunk);
    }
    if (st == DYT_OK && m->chunk != NULL && m->hands.kernels.self == NULL) {
        st = dyti_hands_open(&m->hands, dyti_hands_cores(), NULL);
    }
    return st != DYT_OK ? st : upload_all(m);
}

enum dyt_status dyti_mirror_wake(struct dyti_mirror *m, uint64_t cap_bytes)
{
    enum dyt_status st = DYT_OK;

    pthread_mutex_lock(&m->devices->lock);
    if (!m->awake && cap_bytes > 0 && m->bytes > cap_bytes) {
        st = DYTI_FAIL(DYT_ERR_NOMEM,
                       "rows on a device need %llu bytes of the host beside "
                       "them (a mirror), the cap is %llu: raise cap_bytes",
                       (unsigned long long)m->bytes,
                       (unsigned long long)cap_bytes);
    } else if (!m->awake) {
        st = dyti_segment_check_room(&m->segment);
        st = st != DYT_OK ? st : wake(m);
        m->awake = st == DYT_OK;
    }
    pthread_mutex_unlock(&m->devices->lock);
    return st;
}

/* ---- before ---------------------------------------------------------------
 */

enum dyt_status dyti_mirror_look(const struct dyti_mirror *m)
{
    struct dyti_found found = {.count = 0};
    uint32_t device = UINT32_MAX;

    for (size_t i = 0; i < m->place_count; i++) {
        const struct dyti_device_place *place = &m->place[i];

        if (place->device != device) {
            enum dyt_status st = m->devices->module->memory->use(
                dyti_device_uuid(&m->devices->device[place->device]));

            if (st != DYT_OK) {
                return st;
            }
            device = place->device;
        }
        dyti_devices_look(m->devices, place, &found);
    }
    return dyti_found_finish(&found, NULL);
}

/* Under the lock: until all devices have done what they have, the first failure
 * is kept. */
static enum dyt_status wait_all(const struct dyti_mirror *m, enum dyt_status st)
{
    char words[1024];

    snprintf(words, sizeof(words), "%s", dyti_error_message());
    for (size_t i = 0; i < m->devices->count; i++) {
        enum dyt_status its = dyti_kernels_wait(&m->devices->device[i].kernels);

        if (st == DYT_OK && its != DYT_OK) {
            st = its;
            snprintf(words, sizeof(words), "%s", dyti_error_message());
        }
    }
    return st == DYT_OK ? DYT_OK : dyti_error_adopt(st, words);
}

enum dyt_status dyti_mirror_ready(struct dyti_mirror *m)
{
    enum dyt_status st;

    pthread_mutex_lock(&m->devices->lock);
    st = wait_all(m, dyti_mirror_look(m));
    pthread_mutex_unlock(&m->devices->lock);
    return st;
}

/* What the rows' own queues have comes first. */
static enum dyt_status come_after(const struct dyti_kernels *k,
                                  const struct dyti_mirror_part *p, void *event)
{
    enum dyt_status st = DYT_OK;

    if (event != NULL) {
        return k->ops->after_event(k->self, event);
    }
    for (uint32_t i = 0; i < p->stream_count && st == DYT_OK; i++) {
        st = k->ops->after_stream(k->self, p->stream[i]);
    }
    return st;
}

enum dyt_status dyti_mirror_follow(struct dyti_mirror *m, void *event)
{
    enum dyt_status st = DYT_OK;

    pthread_mutex_lock(&m->devices->lock);
    for (size_t i = 0; i < m->devices->count && st == DYT_OK; i++) {
        if (m->part[i].take.count > 0) {
            st = come_after(&m->devices->device[i].kernels, &m->part[i], event);
        }
    }
    pthread_mutex_unlock(&m->devices->lock);
    return st;
}

/* ---- copies ---------------------------------------------------------------
 */

/* Bytes [lo, hi) of the boxes by way of the pinned buffer. */
static enum dyt_status carry(const struct dyti_mirror *m,
                             const struct dyti_kernels *k,
                             const struct dyti_stream_boxes *stream,
                             struct dyti_stream_cursor *cursor, uint64_t lo,
                             uint64_t hi, bool take)
{
    struct dyti_copy_list *list = NULL;
    enum dyt_status st =
        take ? k->ops->list_pack(k->self, stream, lo, hi, m->chunk, &list)
             : dyti_pack(&m->hands.kernels, stream, cursor, m->chunk, hi - lo);

    if (st == DYT_OK && !take) {
        st = k->ops->list_unpack(k->self, stream, lo, hi, m->chunk, &list);
    }
    st = st != DYT_OK ? st : k->ops->list_run(k->self, list);
    st = st != DYT_OK ? st : dyti_kernels_wait(k);
    k->ops->list_free(k->self, list);
    return st == DYT_OK && take ? dyti_unpack(&m->hands.kernels, stream, cursor,
                                              m->chunk, hi - lo)
                                : st;
}

static enum dyt_status copy_way(const struct dyti_mirror *m,
                                const struct dyti_kernels *k,
                                const struct dyti_mirror_way *way, bool take)
{
    struct dyti_stream_boxes stream = {
        .box = way->copy, .at = way->at, .box_count = way->count};
    struct dyti_stream_cursor cursor = {0};
    uint64_t end = way->at[way->count];
    enum dyt_status st = DYT_OK;

    if (m->pinned) {
        return k->ops->list_run(k->self, way->list);
    }
    dyti_stream_seek(&stream, 0, &cursor);
    for (uint64_t lo = 0; lo < end && st == DYT_OK; lo += DYTI_MIRROR_CHUNK) {
        uint64_t hi =
            end - lo < DYTI_MIRROR_CHUNK ? end : lo + DYTI_MIRROR_CHUNK;

        st = carry(m, k, &stream, &cursor, lo, hi, take);
    }
    return st;
}

/* @param follows  the rows' streams first, or `event` */
static enum dyt_status copy_all(struct dyti_mirror *m, bool take, bool follows,
                                void *event)
{
    enum dyt_status st;

    pthread_mutex_lock(&m->devices->lock);
    st = m->awake ? dyti_mirror_look(m)
                  : DYTI_FAIL(DYT_ERR_STATE, "the mirror sleeps");
    for (size_t i = 0; i < m->devices->count && st == DYT_OK; i++) {
        const struct dyti_kernels *k = &m->devices->device[i].kernels;
        const struct dyti_mirror_part *p = &m->part[i];
        const struct dyti_mirror_way *way = take ? &p->take : &p->give;

        if (way->count > 0) {
            st = follows ? come_after(k, p, event) : DYT_OK;
            st = st != DYT_OK ? st : copy_way(m, k, way, take);
        }
    }
    st = wait_all(m, st);
    pthread_mutex_unlock(&m->devices->lock);
    if (st != DYT_OK) {
        DYTI_NOTE("copying rows %s", take ? "from a device to their mirror"
                                          : "from their mirror to a device");
    }
    return st;
}

enum dyt_status dyti_mirror_take(struct dyti_mirror *mirror)
{
    return copy_all(mirror, true, false, NULL);
}

enum dyt_status dyti_mirror_give(struct dyti_mirror *mirror, void *event)
{
    return copy_all(mirror, false, true, event);
}

enum dyt_status dyti_mirror_clear_pads(struct dyti_mirror *m)
{
    enum dyt_status st = DYT_OK;

    pthread_mutex_lock(&m->devices->lock);
    for (size_t i = 0; i < m->devices->count && st == DYT_OK; i++) {
        const struct dyti_kernels *k = &m->devices->device[i].kernels;

        if (m->part[i].pads.count > 0) {
            st = k->ops->list_run(k->self, m->part[i].pads.list);
            st = st != DYT_OK ? st : dyti_kernels_wait(k);
        }
    }
    pthread_mutex_unlock(&m->devices->lock);
    return st;
}

/* ---- hashes ---------------------------------------------------------------
 */

enum dyt_status dyti_mirror_row_hash(struct dyti_mirror *m, uint32_t row,
                                     uint64_t *out_hash)
{
    uint64_t sum = 0;
    enum dyt_status st;

    pthread_mutex_lock(&m->devices->lock);
    st = dyti_mirror_look(m);
    for (size_t i = 0; i < m->hash_count && st == DYT_OK; i++) {
        uint32_t device = m->hash[i].device;
        const struct dyti_kernels *k = &m->devices->device[device].kernels;

        if (m->hash[i].row == row) {
            st = come_after(k, &m->part[device], NULL);
            st = st != DYT_OK ? st
                              : k->ops->hash(k->self, &m->hash[i].box, 1, &sum);
        }
    }
    pthread_mutex_unlock(&m->devices->lock);
    if (st == DYT_OK) {
        *out_hash = sum;
    }
    return st;
}
