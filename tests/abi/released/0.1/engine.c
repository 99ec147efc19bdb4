/* A generation engine of somebody who built it with release 0.1.  It answers
 * each prompt with the prompt's own last token. */
#include <dynatrain/engine.h>

#include <stdlib.h>
#include <string.h>

struct engine {
    uint64_t version, id;
    int32_t token;
    float logprob;
    struct dyt_engine_span span;
    int waiting;
};

static const struct dyt_engine_host *lent;

static enum dyt_status do_open(const struct dyt_engine_open *params,
                               void **out_self)
{
    struct engine *e = calloc(1, sizeof(*e));

    if (e == NULL || params->struct_size < sizeof(*params)) {
        free(e);
        return lent->fail(DYT_ERR_NOMEM, "echo: no memory");
    }
    *out_self = e;
    return DYT_OK;
}

static void do_close(void *self)
{
    free(self);
}

static enum dyt_status do_submit(void *self,
                                 const struct dyt_engine_prompt *prompt,
                                 size_t count)
{
    struct engine *e = self;

    if (e->version == 0 || count != 1) {
        return lent->fail(DYT_ERR_STATE, "echo: nothing was committed");
    }
    e->id = prompt->id;
    e->token = prompt->token[prompt->token_count - 1];
    e->waiting = 1;
    return DYT_OK;
}

static enum dyt_status do_collect(void *self, int64_t timeout_ns,
                                  struct dyt_engine_sample *out)
{
    struct engine *e = self;

    (void)timeout_ns;
    if (!e->waiting) {
        return DYT_PENDING;
    }
    e->waiting = 0;
    e->span.version = e->version;
    memset(out, 0, sizeof(*out));
    out->struct_size = sizeof(*out);
    out->finish = DYT_ENGINE_LENGTH;
    out->id = e->id;
    out->token_count = out->span_count = 1;
    out->token = &e->token;
    out->logprob = &e->logprob;
    out->span = &e->span;
    return DYT_OK;
}

static enum dyt_status do_pause(void *self, uint32_t in_flight)
{
    (void)self;
    (void)in_flight;
    return DYT_OK;
}

static enum dyt_status do_update(void *self, uint64_t version,
                                 int64_t timeout_ns,
                                 struct dyt_switch_report *out_report)
{
    struct engine *e = self;

    (void)timeout_ns;
    e->version = version;
    out_report->committed = 1;
    out_report->version = version;
    return DYT_OK;
}

static enum dyt_status do_resume(void *self)
{
    (void)self;
    return DYT_OK;
}

const struct dyt_engine_ops *dynatrain_engine_v1(
    const struct dyt_engine_host *host);
const struct dyt_engine_ops *dynatrain_engine_v1(
    const struct dyt_engine_host *host)
{
    static struct dyt_engine_ops ops;

    lent = host;
    ops.struct_size = sizeof(ops);
    ops.name = "echo";
    ops.version = "0.1";
    ops.open = do_open;
    ops.close = do_close;
    ops.submit = do_submit;
    ops.collect = do_collect;
    ops.pause = do_pause;
    ops.update = do_update;
    ops.resume = do_resume;
    return &ops;
}
