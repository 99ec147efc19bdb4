/* Memory of a member: given back and taken again, in one order, with its
 * hooks. */
#include "lib/session_device.h"

#include "lib/handles.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_TAGS                                                               \
    (DYT_TAG_WEIGHTS | DYT_TAG_KV_CACHE | DYT_TAG_OPTIMIZER | DYT_TAG_GRAD)

/* ---- hooks and memory ---------------------------------------------------- */

static enum dyt_status set_hooks(struct dyt_session *s,
                                 const struct dyt_session_hooks *hooks)
{
    enum dyt_status st;

    if (hooks == NULL) {
        return dyti_null_argument("dyt_session_set_hooks");
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

/* Under the lock: what the manager has not done yet it does not do. */
static void give_up_memory(struct dyt_session *s, enum dyt_status why)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_WITHDRAW, .status = why};

    dyti_session_tell(s, &r);
}

/* The replica must not be in a link while its weights go or come. */
static enum dyt_status tell_manager(struct dyt_session *s, uint32_t what)
{
    struct dyti_msg_request r = {.what = what};

    return s->params.role == DYT_ROLE_RECEIVER && s->published
               ? dyti_session_call(s, DYTI_CALL_RELEASE, &r, -1, give_up_memory,
                                   NULL)
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
