/* Memory of a member: mapped, lent, given back and taken again. */
#include "lib/session_device.h"

#include "lib/handles.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_TAGS                                                               \
    (DYT_TAG_WEIGHTS | DYT_TAG_KV_CACHE | DYT_TAG_OPTIMIZER | DYT_TAG_GRAD)

/* ---- map ----------------------------------------------------------------- */

/* As they will be published; those without memory get some. */
static enum dyt_status check_rows(const struct dyt_row *row, uint64_t row_count)
{
    struct dyt_row *copy = calloc(row_count, sizeof(*copy));
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*copy),
                            .row = copy,
                            .row_count = row_count};
    enum dyt_status st;

    if (copy == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)row_count);
    }
    for (uint64_t i = 0; i < row_count; i++) {
        copy[i] = row[i];
        copy[i].flags |= row[i].data == NULL ? DYT_ROW_STAGED : 0;
        copy[i].piece_count = 0; /* looked at when they are published */
    }
    st = dyti_view_check(&view);
    st = st != DYT_OK ? st : dyti_view_check_memory(&view, false);
    free(copy);
    return st;
}

/* Under the lock.  Rows of the host, then those of devices; all, or none. */
static enum dyt_status open_mapped(struct dyt_session *s, struct dyt_row *row,
                                   uint64_t row_count)
{
    uint32_t sets = s->params.commit == DYT_COMMIT_DOUBLE ? 2 : 1;
    struct dyt_row *before = calloc(row_count + 1u, sizeof(*before));
    enum dyt_status st;

    if (before == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)row_count);
    }
    memcpy(before, row, row_count * sizeof(*before));
    st = dyti_mapped_open(row, row_count, sets, &s->mapped);
    if (st == DYT_OK) {
        st = dyti_session_map_devices(s, row, row_count);
        if (st != DYT_OK) {
            dyti_mapped_close(s->mapped);
            s->mapped = NULL;
            dyti_session_close_mirror(s);
            memcpy(row, before, row_count * sizeof(*before));
        }
    }
    free(before);
    return st;
}

static enum dyt_status map_rows(struct dyt_session *s, struct dyt_row *row,
                                uint64_t row_count)
{
    enum dyt_status st = DYT_OK;

    if (row == NULL || row_count == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "dyt_session_map: no rows: give those that will be "
                         "published");
    }
    for (uint64_t i = 0; i < row_count && st == DYT_OK; i++) {
        st = dyti_struct_check("dyt_row", row[i].struct_size,
                               (uint32_t)sizeof(*row));
    }
    st = st != DYT_OK ? st : check_rows(row, row_count);
    pthread_mutex_lock(&s->lock);
    if (st == DYT_OK && s->params.memory != DYT_MEMORY_MAPPED) {
        st = DYTI_FAIL(DYT_ERR_STATE, "the member joined with memory OWN");
    }
    if (st == DYT_OK && (s->published || s->mapped != NULL)) {
        st = DYTI_FAIL(DYT_ERR_STATE, "rows are mapped once, before publish");
    }
    st = st != DYT_OK ? st : open_mapped(s, row, row_count);
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_session_map(dyt_session *s, struct dyt_row *row,
                                uint64_t row_count)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_map");

    if (st == DYT_OK) {
        st = map_rows(s, row, row_count);
        dyti_session_exit(s);
    }
    return st;
}

enum dyt_status dyti_session_check_row(const struct dyt_session *s,
                                       uint64_t row)
{
    return s->published && row < s->row_count
               ? DYT_OK
               : DYTI_FAIL(
                     DYT_ERR_INVALID, "row %llu of %llu published ones",
                     (unsigned long long)row,
                     (unsigned long long)(s->published ? s->row_count : 0));
}

static enum dyt_status row_data(struct dyt_session *s, uint64_t row,
                                void **out_data)
{
    enum dyt_status st;

    if (out_data == NULL) {
        return dyti_session_null("dyt_session_row_data");
    }
    pthread_mutex_lock(&s->lock);
    st = dyti_session_check_row(s, row);
    if (st == DYT_OK) {
        *out_data = s->mapped != NULL
                        ? dyti_session_mapped_row(s, row, s->live_set)
                        : s->row[row].data;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_session_row_data(dyt_session *s, uint64_t row,
                                     void **out_data)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_row_data");

    if (st == DYT_OK) {
        st = row_data(s, row, out_data);
        dyti_session_exit(s);
    }
    return st;
}

static enum dyt_status staged_data(struct dyt_session *s, uint64_t row,
                                   void **out_data)
{
    enum dyt_status st;

    if (out_data == NULL) {
        return dyti_session_null("dyt_session_staged");
    }
    pthread_mutex_lock(&s->lock);
    st = dyti_session_check_row(s, row);
    if (st == DYT_OK && s->staged[row] == NULL) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "row %llu has memory of its own: nothing was lent",
                       (unsigned long long)row);
    }
    if (st == DYT_OK) {
        *out_data = s->staged[row];
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_session_staged(dyt_session *s, uint64_t row,
                                   void **out_data)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_staged");

    if (st == DYT_OK) {
        st = staged_data(s, row, out_data);
        dyti_session_exit(s);
    }
    return st;
}

/* ---- hooks and memory ---------------------------------------------------- */

static enum dyt_status set_hooks(struct dyt_session *s,
                                 const struct dyt_session_hooks *hooks)
{
    enum dyt_status st;

    if (hooks == NULL) {
        return dyti_session_null("dyt_session_set_hooks");
    }
    st = dyti_struct_check("dyt_session_hooks", hooks->struct_size,
                           offsetof(struct dyt_session_hooks, restore) +
                               sizeof(hooks->restore));
    if (st != DYT_OK) {
        return st;
    }
    pthread_mutex_lock(&s->lock);
    memcpy(&s->hooks, hooks, sizeof(s->hooks));
    pthread_mutex_unlock(&s->lock);
    return DYT_OK;
}

enum dyt_status dyt_session_set_hooks(dyt_session *s,
                                      const struct dyt_session_hooks *hooks)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_set_hooks");

    if (st == DYT_OK) {
        st = set_hooks(s, hooks);
        dyti_session_exit(s);
    }
    return st;
}

static const struct {
    uint32_t tag;
    const char *name;
} tag_names[] = {{DYT_TAG_WEIGHTS, "weights"},
                 {DYT_TAG_KV_CACHE, "kv_cache"},
                 {DYT_TAG_OPTIMIZER, "optimizer"},
                 {DYT_TAG_GRAD, "grad"}};

struct tag_words {
    char text[64];
};

/* "weights and kv_cache". */
static struct tag_words words(uint32_t tags)
{
    struct tag_words w = {""};
    size_t used = 0;

    for (size_t i = 0; i < sizeof(tag_names) / sizeof(tag_names[0]); i++) {
        if ((tags & tag_names[i].tag) != 0 && used < sizeof(w.text)) {
            used +=
                (size_t)snprintf(w.text + used, sizeof(w.text) - used, "%s%s",
                                 used > 0 ? " and " : "", tag_names[i].name);
        }
    }
    return w;
}

static enum dyt_status check_tags(uint32_t tags)
{
    return tags != 0 && (tags & ~ALL_TAGS) == 0
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "tags %#x: bits of weights 1, kv_cache 2, optimizer "
                           "4, grad 8",
                           tags);
}

/* The replica must not be in a link while its weights go or come. */
static enum dyt_status tell_manager(struct dyt_session *s, uint32_t what)
{
    struct dyti_msg_request r = {.what = what};

    return s->params.role == DYT_ROLE_RECEIVER && s->published
               ? dyti_session_call(s, DYTI_CALL_RELEASE, &r, -1, NULL, NULL)
               : DYT_OK;
}

/* One release or restore at a time; `begun`: it is this one. */
static enum dyt_status begin_memory(struct dyt_session *s, bool *begun)
{
    if (s->in_memory) {
        return DYTI_FAIL(DYT_ERR_BUSY,
                         "another thread releases or restores memory");
    }
    s->in_memory = *begun = true;
    return DYT_OK;
}

static void end_memory(struct dyt_session *s)
{
    pthread_mutex_lock(&s->lock);
    s->in_memory = false;
    pthread_mutex_unlock(&s->lock);
}

/* Under the lock. */
static enum dyt_status check_release(const struct dyt_session *s, uint32_t tags)
{
    if ((tags & s->released) != 0) {
        return DYTI_FAIL(DYT_ERR_STATE, "released already: %s",
                         words(tags & s->released).text);
    }
    if ((tags & DYT_TAG_WEIGHTS) != 0 && dyti_session_is_pinned(s)) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "version %llu is offered and may be read now: wait "
                         "for its ticket, or cancel it, before the weights go",
                         (unsigned long long)s->ticket->version);
    }
    return DYT_OK;
}

static enum dyt_status call_hook(struct dyt_session *s,
                                 enum dyt_status (*hook)(void *arg,
                                                         uint32_t tags),
                                 uint32_t tags)
{
    enum dyt_status st;

    pthread_mutex_lock(&s->lock);
    dyti_session_hook_begins(s, DYTI_HOOKED_MEMORY);
    pthread_mutex_unlock(&s->lock);
    st = hook(s->hooks.arg, tags);
    pthread_mutex_lock(&s->lock);
    dyti_session_hook_ended(s, DYTI_HOOKED_MEMORY);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* The manager first: from then on nobody reads them.  Our pages last: a hook
 * that fails leaves them. */
static enum dyt_status release(struct dyt_session *s, uint32_t tags)
{
    bool weights = (tags & DYT_TAG_WEIGHTS) != 0;
    enum dyt_status st =
        weights ? tell_manager(s, DYTI_REQUEST_RELEASE) : DYT_OK;

    if (st != DYT_OK) {
        return st;
    }
    if (s->hooks.release != NULL) {
        st = call_hook(s, s->hooks.release, tags);
        if (st != DYT_OK) {
            st = DYTI_FAIL(st, "the server's release hook failed for %s",
                           words(tags).text);
        }
    }
    if (st == DYT_OK && weights && s->mapped != NULL) {
        st = dyti_mapped_release(s->mapped, s->has_pieces,
                                 s->published ? s->row_count : 0);
        st = st != DYT_OK ? st : dyti_session_sleep_devices(s, true);
    }
    if (weights) { /* whatever is left of them */
        pthread_mutex_lock(&s->lock);
        s->valid = false;
        s->slept = s->params.role == DYT_ROLE_TRAINER;
        pthread_mutex_unlock(&s->lock);
    }
    if (st != DYT_OK && weights) {
        char text[DYTI_SESSION_TEXT_BYTES];

        snprintf(text, sizeof(text), "%s", dyti_error_message());
        (void)tell_manager(s, DYTI_REQUEST_RESTORE);
        return dyti_error_adopt(st, text);
    }
    return st;
}

static enum dyt_status release_tags(struct dyt_session *s, uint32_t tags)
{
    bool begun = false;
    enum dyt_status st = check_tags(tags);

    if (st != DYT_OK) {
        return st;
    }
    pthread_mutex_lock(&s->lock);
    st = check_release(s, tags);
    st = st != DYT_OK ? st : begin_memory(s, &begun);
    pthread_mutex_unlock(&s->lock);
    st = st != DYT_OK ? st : release(s, tags);
    if (st == DYT_OK) {
        pthread_mutex_lock(&s->lock);
        s->released |= tags;
        pthread_mutex_unlock(&s->lock);
    }
    if (begun) {
        end_memory(s);
    }
    return st;
}

enum dyt_status dyt_session_release(dyt_session *s, uint32_t tags)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_release");

    if (st == DYT_OK) {
        st = release_tags(s, tags);
        dyti_session_exit(s);
    }
    return st;
}

/* Under the lock.  restore weights → receive → commit → restore kv_cache →
 * resume */
static enum dyt_status check_restore(const struct dyt_session *s, uint32_t tags)
{
    if ((tags & ~s->released) != 0) {
        return DYTI_FAIL(DYT_ERR_STATE, "not released: %s",
                         words(tags & ~s->released).text);
    }
    if ((tags & DYT_TAG_KV_CACHE) == 0) {
        return DYT_OK;
    }
    if ((s->released & DYT_TAG_WEIGHTS) != 0) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "kv_cache before the weights: restore them, receive "
                         "a version, then restore kv_cache");
    }
    if (!s->valid && s->params.role == DYT_ROLE_RECEIVER) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "kv_cache before a version was committed: receive "
                         "one, then restore kv_cache");
    }
    return DYT_OK;
}

static enum dyt_status restore(struct dyt_session *s, uint32_t tags)
{
    bool weights = (tags & DYT_TAG_WEIGHTS) != 0;
    enum dyt_status st = DYT_OK;

    if (weights && s->mapped != NULL) {
        st = dyti_mapped_restore(s->mapped, s->has_pieces,
                                 s->published ? s->row_count : 0);
        st = st != DYT_OK ? st : dyti_session_sleep_devices(s, false);
    }
    if (st == DYT_OK && s->hooks.restore != NULL) {
        st = call_hook(s, s->hooks.restore, tags);
        if (st != DYT_OK) {
            st = DYTI_FAIL(st, "the server's restore hook failed for %s",
                           words(tags).text);
        }
    }
    return st == DYT_OK && weights ? tell_manager(s, DYTI_REQUEST_RESTORE) : st;
}

static enum dyt_status restore_tags(struct dyt_session *s, uint32_t tags)
{
    bool begun = false;
    enum dyt_status st = check_tags(tags);

    if (st != DYT_OK) {
        return st;
    }
    pthread_mutex_lock(&s->lock);
    st = check_restore(s, tags);
    st = st != DYT_OK ? st : begin_memory(s, &begun);
    pthread_mutex_unlock(&s->lock);
    st = st != DYT_OK ? st : restore(s, tags);
    if (st == DYT_OK) {
        pthread_mutex_lock(&s->lock);
        s->released &= ~tags;
        if ((tags & DYT_TAG_KV_CACHE) != 0 &&
            !s->call[DYTI_CALL_RECEIVE].running) {
            st = dyti_session_resume(s); /* it waited for its kv_cache */
        }
        pthread_mutex_unlock(&s->lock);
    }
    if (begun) {
        end_memory(s);
    }
    return st;
}

enum dyt_status dyt_session_restore(dyt_session *s, uint32_t tags)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_restore");

    if (st == DYT_OK) {
        st = restore_tags(s, tags);
        dyti_session_exit(s);
    }
    return st;
}
