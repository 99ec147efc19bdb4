/* Pause, take a version, resume: each server by itself.  One that fails is left
 * out until it takes a version again. */
#include "engine_http.h"

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

enum dyt_status versions_pause(void *self, uint32_t in_flight)
{
    static const char *const path[] = {"/pause?mode=wait", "/pause?mode=abort",
                                       "/pause?mode=keep"};
    static const char *const sglang = "/pause_generation";
    struct engine *e = self;
    bool vllm = strcmp(e->kind->name, "vllm") == 0;

    if (in_flight > 2) {
        return engine_fail(DYT_ERR_INVALID, "in_flight %u", in_flight);
    }
    for (uint32_t i = 0; i < e->server_count; i++) {
        char why[WHY_BYTES];

        if (!tell(e, &e->server[i], vllm ? path[in_flight] : sglang, "{}", why,
                  sizeof(why))) {
            e->server[i].dead = true;
            engine_host->log(1, why);
        } else {
            e->server[i].dead = false;
        }
    }
    e->paused = true;
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
    if (strcmp(e->kind->name, "sglang") == 0) {
        snprintf(update, sizeof(update), "{\"version\":%llu,\"timeout\":%g}",
                 (unsigned long long)version, (double)timeout_ns * 1e-9);
        return tell(e, s, "/dynatrain_update", update, why, why_bytes) &&
               tell(e, s, "/flush_cache", "{}", why, why_bytes);
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
    const char *path =
        strcmp(e->kind->name, "vllm") == 0 ? "/resume" : "/continue_generation";

    for (uint32_t i = 0; i < e->server_count; i++) {
        char why[WHY_BYTES];

        if (!e->server[i].dead &&
            !tell(e, &e->server[i], path, "{}", why, sizeof(why))) {
            e->server[i].dead = true;
            engine_host->log(1, why);
        }
    }
    e->paused = false;
    return DYT_OK;
}

/* The server's plugin joins the job's session. */
enum dyt_status versions_init(struct engine *e, uint32_t i,
                              const struct dyt_engine_open *p)
{
    json_t *body = json_pack("{s:{s:s, s:s, s:i, s:f}}", "init_info", "address",
                             p->job_address, "job", p->job, "replica", (int)i,
                             "timeout", (double)p->timeout_ns * 1e-9);
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    char why[WHY_BYTES] = "out of memory";
    bool ok = text != NULL && tell(e, &e->server[i],
                                   strcmp(e->kind->name, "vllm") == 0
                                       ? "/init_weight_transfer_engine"
                                       : "/dynatrain_init",
                                   text, why, sizeof(why));

    free(text);
    json_decref(body);
    return ok ? DYT_OK
              : engine_fail(
                    DYT_ERR_PEER,
                    "%s: start vLLM with VLLM_SERVER_DEV_MODE=1 and "
                    "--weight-transfer-config '{\"backend\": \"dynatrain\"}'",
                    why);
}
