/* Pause, take a version, resume: each server by itself.  One that fails is left
 * out until it takes a version again. */
#include "engine_http.h"
#include "sglang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Post to one server; anything but 200 is its failure. */
static bool tell(struct engine *e, struct server *s, const char *path,
                 const char *json, char *why, size_t why_bytes)
{
    char url[URL_BYTES + 64];
    struct reply r = {0};
    bool ok;

    snprintf(url, sizeof(url), "%s%s", s->url, path);
    ok = client_call(e->client, url, json, e->timeout_ns, &r);
    if (!ok) {
        snprintf(why, why_bytes, "%s: no answer", url);
    } else if (r.status != 200) {
        snprintf(why, why_bytes, "%s: HTTP %ld %s%.300s", url, r.status, r.why,
                 r.body == NULL ? "" : r.body);
        ok = false;
    }
    free(r.body);
    return ok;
}

static bool is_sglang(const struct engine *e)
{
    return strcmp(e->kind->name, "sglang") == 0;
}

static bool sglang_pause(struct engine *e, struct server *s, uint32_t in_flight,
                         char *why)
{
    const char *mode = sglang_pause_mode(in_flight);
    char json[64];

    if (mode == NULL) {
        return true;
    }
    snprintf(json, sizeof(json), "{\"mode\":\"%s\"}", mode);
    return tell(e, s, "/pause_generation", json, why, WHY_BYTES);
}

/* How many tensor-parallel workers it has: each gets a payload of its own. */
static bool sglang_workers(struct engine *e, struct server *s, char *why)
{
    char url[URL_BYTES + 64];
    struct reply r = {0};
    json_t *about = NULL;
    json_int_t count = 0;

    snprintf(url, sizeof(url), "%s/server_info", s->url);
    if (client_call(e->client, url, NULL, e->timeout_ns, &r) &&
        r.status == 200) {
        about = json_loads(r.body, 0, NULL);
        count = json_integer_value(json_object_get(about, "tp_size"));
    }
    snprintf(why, WHY_BYTES, "%s: HTTP %ld %s, no tp_size in its answer", url,
             r.status, r.why);
    json_decref(about);
    free(r.body);
    s->workers = count > 0 && count <= 4096 ? (uint32_t)count : 0;
    return s->workers > 0;
}

/* A session that somebody left open is ended; older servers have none. */
static bool sglang_begin(struct engine *e, struct server *s, char *why)
{
    static const char path[] = "/begin_weight_update",
                      body[] = "{\"selector\":\"target\"}";

    if (tell(e, s, path, body, why, WHY_BYTES)) {
        return true;
    }
    if (strstr(why, ": HTTP 404 ") != NULL) {
        s->sessionless = true;
        return true;
    }
    return tell(e, s, "/end_weight_update", "{}", why, WHY_BYTES) &&
           tell(e, s, path, body, why, WHY_BYTES);
}

/* A session of updates with the one update in it.  It is ended whatever comes
 * of that, or the next would be refused. */
static bool sglang_tell(struct engine *e, struct server *s, const char *name,
                        int64_t number, bool flush, char *why)
{
    char *body;
    bool ok;

    if (s->workers == 0 && !sglang_workers(e, s, why)) {
        return false;
    }
    body = sglang_update_body(s->workers, name, number, flush);
    if (body == NULL) {
        snprintf(why, WHY_BYTES, "out of memory");
        return false;
    }
    ok = s->sessionless || sglang_begin(e, s, why);
    if (ok) {
        char ignored[WHY_BYTES];

        ok = tell(e, s, "/update_weights_from_tensor", body, why, WHY_BYTES);
        ok = (s->sessionless || tell(e, s, "/end_weight_update", "{}",
                                     ok ? why : ignored, WHY_BYTES)) &&
             ok;
    }
    free(body);
    return ok;
}

enum dyt_status versions_pause(void *self, uint32_t in_flight)
{
    static const char *const path[] = {"/pause?mode=wait", "/pause?mode=abort",
                                       "/pause?mode=keep"};
    struct engine *e = self;
    enum dyt_status st;

    if (in_flight > 2) {
        return engine_fail(DYT_ERR_INVALID, "in_flight %u", in_flight);
    }
    st = job_settle(e, in_flight == 0);
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < e->server_count; i++) {
        char why[WHY_BYTES];
        bool ok = is_sglang(e) ? sglang_pause(e, &e->server[i], in_flight, why)
                               : tell(e, &e->server[i], path[in_flight], "{}",
                                      why, sizeof(why));

        e->server[i].dead = !ok;
        if (!ok) {
            engine_host->log(1, why);
        }
    }
    e->paused = true;
    e->in_flight = in_flight;
    return DYT_OK;
}

static bool update_one(struct engine *e, struct server *s, uint64_t version,
                       int64_t timeout_ns, char *why, size_t why_bytes)
{
    char update[128], finish[64];

    snprintf(update, sizeof(update),
             "{\"update_info\":{\"version\":%llu,\"timeout\":%g}}",
             (unsigned long long)version, (double)timeout_ns * 1e-9);
    snprintf(finish, sizeof(finish), "{\"weight_version\":\"%llu\"}",
             (unsigned long long)version);
    if (is_sglang(e)) {
        return sglang_tell(e, s, SGLANG_VERSION, (int64_t)version, true, why);
    }
    return tell(e, s, "/start_weight_update", "{}", why, why_bytes) &&
           tell(e, s, "/update_weights", update, why, why_bytes) &&
           tell(e, s, "/finish_weight_update", finish, why, why_bytes) &&
           tell(e, s, "/reset_prefix_cache", "{}", why, why_bytes);
}

enum dyt_status versions_update(void *self, uint64_t version,
                                int64_t timeout_ns,
                                struct dyt_switch_report *out_report)
{
    struct engine *e = self;
    uint32_t have = 0;
    char why[WHY_BYTES] = "";

    for (uint32_t i = 0; i < e->server_count; i++) {
        struct server *s = &e->server[i];

        if (s->dead ||
            !update_one(e, s, version, timeout_ns, why, sizeof(why))) {
            s->dead = true;
            s->serves = false;
            engine_host->log(1, why[0] != '\0' ? why : s->url);
            continue;
        }
        s->version = version;
        s->serves = true;
        have++;
    }
    if (have == 0) {
        return engine_fail(DYT_ERR_PEER, "no server took version %llu: %s",
                           (unsigned long long)version,
                           why[0] == '\0' ? "none answers" : why);
    }
    out_report->committed = 1;
    out_report->version = version;
    return DYT_OK;
}

enum dyt_status versions_resume(void *self)
{
    struct engine *e = self;
    const char *path = is_sglang(e) ? "/continue_generation" : "/resume";
    bool was_paused = !is_sglang(e) || sglang_pause_mode(e->in_flight) != NULL;

    for (uint32_t i = 0; i < e->server_count; i++) {
        char why[WHY_BYTES];

        if (was_paused && !e->server[i].dead &&
            !tell(e, &e->server[i], path, "{}", why, sizeof(why))) {
            e->server[i].dead = true;
            engine_host->log(1, why);
        }
    }
    e->paused = false;
    return DYT_OK;
}

static bool sglang_join(struct engine *e, struct server *s, json_t *options,
                        char *why)
{
    char *text = json_dumps(options, JSON_COMPACT);
    size_t bytes = text == NULL ? 0 : strlen(text) + sizeof(SGLANG_INIT);
    char *name = text == NULL ? NULL : malloc(bytes);
    bool ok = false;

    if (name != NULL) {
        snprintf(name, bytes, SGLANG_INIT "%s", text);
        ok = sglang_tell(e, s, name, 0, false, why);
    }
    free(name);
    free(text);
    return ok;
}

static bool vllm_join(struct engine *e, struct server *s, json_t *options,
                      char *why)
{
    json_t *body = json_pack("{s:O}", "init_info", options);
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    bool ok = text != NULL &&
              tell(e, s, "/init_weight_transfer_engine", text, why, WHY_BYTES);

    free(text);
    json_decref(body);
    return ok;
}

/* The server's plugin joins the job's session. */
enum dyt_status versions_init(struct engine *e, uint32_t i,
                              const struct dyt_engine_open *p)
{
    json_t *options = json_pack(
        "{s:s, s:s, s:i, s:f}", "address", p->job_address, "job", p->job,
        "replica", (int)i, "timeout", (double)p->timeout_ns * 1e-9);
    char why[WHY_BYTES] = "out of memory";
    bool ok = options != NULL && (is_sglang(e) ? sglang_join : vllm_join)(
                                     e, &e->server[i], options, why);

    json_decref(options);
    if (ok) {
        return DYT_OK;
    }
    return engine_fail(
        DYT_ERR_PEER, "%s: %s", why,
        is_sglang(e)
            ? "this package must be installed beside SGLang, whose plugins it "
              "is one of (or start it with "
              "--custom-weight-loader " SGLANG_FORMAT ")"
            : "start vLLM with VLLM_SERVER_DEV_MODE=1 and "
              "--weight-transfer-config '{\"backend\": \"dynatrain\"}'");
}
