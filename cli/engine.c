#include "cli/engine.h"

#include "base/array.h"
#include "base/thread.h"
#include "cli/backends.h"
#include "cli/engine_sample.h"
#include "plugin/engine_load.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ERROR_BYTES  1536u
#define COLLECT_NS   100000000ll /* one wait for a sample */
#define OPTIONS_MOST 256u

enum call { CALL_NONE, CALL_OPEN, CALL_GENERATE, CALL_UPDATE, CALL_END };

struct dyti_engine {
    const struct dyt_engine_ops *ops;
    struct dyti_engine_params params;
    void *self; /* NULL: not open; of the thread */
    pthread_t thread;
    int fd; /* eventfd */

    pthread_mutex_t lock;
    pthread_cond_t told;
    enum call call; /* what runs */
    enum dyt_status result;
    char text[ERROR_BYTES];
    struct dyti_engine_generate order;
    bool *seen; /* [prompts * samples of each] that have come; the thread's */
    uint64_t version;
    int64_t timeout_ns;
    struct dyt_switch_report report;
    struct dyti_sample *sample; /* that nobody has taken yet */
    size_t sample_count, sample_cap;
    int64_t first_token_ns;
};

static enum dyt_status keep(struct dyti_engine *e,
                            const struct dyt_engine_sample *from)
{
    struct dyti_sample sample;
    bool *seen = NULL;
    enum dyt_status st =
        dyti_engine_sample(&e->order, from, e->seen, &seen, &sample);

    if (st != DYT_OK) {
        DYTI_NOTE("taking sample %u of prompt %llu from the engine %s",
                  from->index, (unsigned long long)from->id, e->ops->name);
        return st;
    }
    *seen = true;
    pthread_mutex_lock(&e->lock);
    st = DYTI_GROW(e->sample, e->sample_cap, e->sample_count + 1);
    if (st == DYT_OK) {
        e->sample[e->sample_count++] = sample;
        if (from->first_token_ns > e->first_token_ns) {
            e->first_token_ns = from->first_token_ns;
        }
    }
    pthread_mutex_unlock(&e->lock);
    if (st != DYT_OK) {
        dyti_sample_fini(&sample);
        return st;
    }
    (void)!write(e->fd, &(uint64_t){1}, sizeof(uint64_t));
    return DYT_OK;
}

/* ---- calls, in the thread ------------------------------------------------ */

static enum dyt_status call_open(struct dyti_engine *e)
{
    const struct dyti_engine_params *p = &e->params;
    struct dyt_engine_option option[OPTIONS_MOST];
    struct dyt_engine_open open = {.struct_size = sizeof(open),
                                   .option = option,
                                   .job_address = p->address,
                                   .job = p->job,
                                   .model = p->model,
                                   .timeout_ns = p->timeout_ns};
    char *text[OPTIONS_MOST] = {NULL};
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < p->option_count && st == DYT_OK; i++) {
        char *equals;

        text[i] = strdup(p->option[i]);
        equals = text[i] == NULL ? NULL : strchr(text[i], '=');
        if (equals == NULL) {
            st = DYTI_FAIL(DYT_ERR_CONFIG,
                           "plugin.options: \"%.80s\" is no key=value",
                           p->option[i]);
            break;
        }
        *equals = '\0';
        option[i] = (struct dyt_engine_option){text[i], equals + 1};
        open.option_count++;
    }
    st = st != DYT_OK ? st : e->ops->open(&open, &e->self);
    for (uint32_t i = 0; i < p->option_count; i++) {
        free(text[i]);
    }
    return st;
}

static enum dyt_status submit(struct dyti_engine *e)
{
    const struct dyti_engine_generate *o = &e->order;
    const struct dyti_sampling *s = o->sampling;
    struct dyt_engine_prompt *prompt = calloc(o->prompt_count, sizeof(*prompt));
    enum dyt_status st;

    if (prompt == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u prompts", o->prompt_count);
    }
    for (uint32_t i = 0; i < o->prompt_count; i++) {
        prompt[i] = (struct dyt_engine_prompt){
            .struct_size = sizeof(prompt[i]),
            .token = o->prompt[i].ids,
            .token_count = o->prompt[i].id_count,
            .id = o->prompt[i].id,
            .seed = o->seed,
            .samples = o->samples_per_prompt,
            .max_tokens = s->max_response_tokens,
            .min_tokens = s->min_response_tokens,
            .temperature = o->greedy ? 0.0f : (float)s->temperature,
            .top_p = (float)s->top_p,
            .min_p = (float)s->min_p,
            .top_k = (int32_t)s->top_k,
            .ignore_eos = s->ignore_eos,
            .stop = o->stop,
            .stop_count = o->stop_count};
    }
    st = e->ops->submit(e->self, prompt, o->prompt_count);
    free(prompt);
    return st;
}

static enum dyt_status call_generate(struct dyti_engine *e)
{
    const struct dyti_engine_generate *o = &e->order;
    uint64_t left = (uint64_t)o->prompt_count * o->samples_per_prompt;
    int64_t heard = dyti_now_ns();
    enum dyt_status st;

    e->seen = calloc(left + 1u, sizeof(*e->seen));
    st = e->seen == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "%llu samples",
                                     (unsigned long long)left)
                         : submit(e);
    while (st == DYT_OK && left > 0) {
        struct dyt_engine_sample sample = {.struct_size = sizeof(sample)};

        st = e->ops->collect(e->self, COLLECT_NS, &sample);
        if (st == DYT_OK) {
            heard = dyti_now_ns();
            left--;
            st = keep(e, &sample);
        } else if (st == DYT_PENDING) {
            st = dyti_now_ns() - heard < e->params.timeout_ns
                     ? DYT_OK
                     : DYTI_FAIL(DYT_ERR_TIMEOUT,
                                 "the engine gave no sample for %g s, %llu "
                                 "are missing",
                                 (double)e->params.timeout_ns * 1e-9,
                                 (unsigned long long)left);
        }
    }
    free(e->seen);
    e->seen = NULL;
    return st;
}

static enum dyt_status call_update(struct dyti_engine *e)
{
    enum dyt_status st = e->ops->pause(e->self, 0);
    enum dyt_status resumed;

    memset(&e->report, 0, sizeof(e->report));
    e->report.struct_size = sizeof(e->report);
    if (st != DYT_OK) {
        return st;
    }
    st = e->ops->update(e->self, e->version, e->timeout_ns, &e->report);
    if (st == DYT_OK && e->report.version != e->version) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "it serves version %llu after the update to %llu",
                       (unsigned long long)e->report.version,
                       (unsigned long long)e->version);
    }
    if (st != DYT_OK) {
        return st; /* paused: what it holds is not what is asked for */
    }
    resumed = e->ops->resume(e->self);
    return resumed;
}

static enum dyt_status make_call(struct dyti_engine *e, enum call call)
{
    enum dyt_status st;

    dyti_error_adopt(DYT_OK, "");
    if (call == CALL_OPEN) {
        st = e->self == NULL ? call_open(e) : DYT_OK;
    } else if (e->self == NULL) {
        st = DYTI_FAIL(DYT_ERR_STATE, "the engine is not open");
    } else {
        st = call == CALL_GENERATE ? call_generate(e) : call_update(e);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("calling the engine %s (%s)", e->ops->name, e->params.path);
    }
    return st;
}

static void *run(void *arg)
{
    struct dyti_engine *e = arg;

    pthread_mutex_lock(&e->lock);
    for (;;) {
        enum call call;
        enum dyt_status st;

        while (e->call == CALL_NONE || e->result != DYT_PENDING) {
            if (e->call == CALL_END) {
                break;
            }
            pthread_cond_wait(&e->told, &e->lock);
        }
        call = e->call;
        if (call == CALL_END) {
            break;
        }
        pthread_mutex_unlock(&e->lock);
        st = make_call(e, call);
        pthread_mutex_lock(&e->lock);
        if (e->call != CALL_END) {
            e->result = st == DYT_PENDING ? DYT_ERR_STATE : st;
            snprintf(e->text, sizeof(e->text), "%s", dyti_error_message());
        }
        (void)!write(e->fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    pthread_mutex_unlock(&e->lock);
    if (e->self != NULL) {
        e->ops->close(e->self);
    }
    return NULL;
}

/* ---- start, stop --------------------------------------------------------- */

enum dyt_status dyti_engine_start(const struct dyti_engine_params *params,
                                  struct dyti_engine **out_engine)
{
    const struct dyt_engine_ops *ops;
    struct dyti_engine *e;
    enum dyt_status st = dyti_engine_load(params->path, &ops);

    if (st != DYT_OK) {
        return st;
    }
    if (params->option_count > OPTIONS_MOST) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "plugin.options: %u, at most %u",
                         params->option_count, OPTIONS_MOST);
    }
    e = calloc(1, sizeof(*e));
    if (e == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the engine %s", params->path);
    }
    e->ops = ops;
    e->params = *params;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->told, NULL);
    e->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    st = e->fd < 0
             ? DYTI_FAIL(DYT_ERR_IO, "eventfd: %s", strerror(errno))
             : dyti_thread_start(run, e, "the engine's thread", &e->thread);
    if (st != DYT_OK) {
        if (e->fd >= 0) {
            close(e->fd);
        }
        pthread_cond_destroy(&e->told);
        pthread_mutex_destroy(&e->lock);
        free(e);
        return st;
    }
    *out_engine = e;
    return DYT_OK;
}

void dyti_engine_stop(struct dyti_engine *e, int64_t patience_ns)
{
    struct timespec until;

    if (e == NULL) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->call = CALL_END;
    pthread_cond_signal(&e->told);
    pthread_mutex_unlock(&e->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(patience_ns / 1000000000);
    until.tv_nsec += patience_ns % 1000000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    if (pthread_timedjoin_np(e->thread, NULL, &until) != 0) {
        pthread_detach(e->thread); /* it may still use e */
        return;
    }
    for (size_t i = 0; i < e->sample_count; i++) {
        dyti_sample_fini(&e->sample[i]);
    }
    free(e->sample);
    close(e->fd);
    pthread_cond_destroy(&e->told);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

int dyti_engine_fd(const struct dyti_engine *e)
{
    return e->fd;
}

/* ---- asking -------------------------------------------------------------- */

/* Locked on DYT_OK: fill in what the call needs, then go(). */
static enum dyt_status begin(struct dyti_engine *e)
{
    pthread_mutex_lock(&e->lock);
    if (e->call == CALL_NONE || e->result != DYT_PENDING) {
        return DYT_OK;
    }
    pthread_mutex_unlock(&e->lock);
    return DYTI_FAIL(DYT_ERR_BUSY, "a call of the engine %s runs",
                     e->ops->name);
}

static enum dyt_status go(struct dyti_engine *e, enum call call)
{
    e->call = call;
    e->result = DYT_PENDING;
    pthread_cond_signal(&e->told);
    pthread_mutex_unlock(&e->lock);
    return DYT_OK;
}

enum dyt_status dyti_engine_ask_open(struct dyti_engine *e)
{
    enum dyt_status st = begin(e);

    return st != DYT_OK ? st : go(e, CALL_OPEN);
}

enum dyt_status dyti_engine_ask_generate(
    struct dyti_engine *e, const struct dyti_engine_generate *order)
{
    enum dyt_status st = begin(e);

    if (st != DYT_OK) {
        return st;
    }
    e->order = *order;
    e->first_token_ns = 0;
    return go(e, CALL_GENERATE);
}

enum dyt_status dyti_engine_ask_update(struct dyti_engine *e, uint64_t version,
                                       int64_t timeout_ns)
{
    enum dyt_status st = begin(e);

    if (st != DYT_OK) {
        return st;
    }
    e->version = version;
    e->timeout_ns = timeout_ns;
    return go(e, CALL_UPDATE);
}

enum dyt_status dyti_engine_result(struct dyti_engine *e)
{
    enum dyt_status st;
    uint64_t count;

    /* Under the lock, as the result is: what is rung for it is never left for
     * those who wait for something else. */
    pthread_mutex_lock(&e->lock);
    (void)!read(e->fd, &count, sizeof(count));
    st = e->result;
    if (st != DYT_OK && st != DYT_PENDING) {
        dyti_error_adopt(st, e->text);
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

void dyti_engine_take(struct dyti_engine *e, struct dyti_sample **out_sample,
                      uint32_t *out_count, int64_t *out_first_token_ns)
{
    pthread_mutex_lock(&e->lock);
    *out_sample = e->sample;
    *out_count = (uint32_t)e->sample_count;
    *out_first_token_ns = e->first_token_ns;
    e->sample = NULL;
    e->sample_count = e->sample_cap = 0;
    pthread_mutex_unlock(&e->lock);
}

const struct dyt_switch_report *dyti_engine_report(const struct dyti_engine *e)
{
    return &e->report;
}
