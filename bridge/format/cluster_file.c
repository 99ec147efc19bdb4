/* configs/clusters/NAME.toml → struct dyti_cluster. */
#include "format/cluster_file.h"

#include "base/banned.h"
#include "format/size_text.h"
#include "format/toml.h"
#include "layout/spec_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS             (1u << 20)
#define ASSUMED_RANKS_PER_HOST 8u
#define WHERE_BYTES            512u
#define TOP_KEYS                                                               \
    "name|hosts|ranks_per_host|memory|nic_gigabytes_per_s|"                    \
    "core_gigabytes_per_s|host_gigabytes_per_s|cores_per_host|"                \
    "source_gigabytes_per_s|start_us|self|host|nic"
#define LINK_KEYS                                                              \
    "gigabytes_per_s|latency_us|message_us|half_duplex|box_ns|"                \
    "convert_gigabytes_per_s"

struct reader {
    const char *file;
    struct dyti_cluster_file *out;
    const struct dyti_toml *hosts; /* as written */
    uint32_t ranks_per_host;
};

static void place(const struct reader *r, const struct dyti_toml *v,
                  char where[WHERE_BYTES])
{
    snprintf(where, WHERE_BYTES, "%s:%u:%u", r->file,
             v->key_line != 0 ? v->key_line : v->line,
             v->key_line != 0 ? v->key_column : v->column);
}

static enum dyt_status unknown(const struct reader *r,
                               const struct dyti_toml *v, const char *table,
                               const char *keys)
{
    char where[WHERE_BYTES], near[64] = "";

    place(r, v, where);
    dyti_spec_nearest(v->key, keys, near);
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "%s: %sthere is no key \"%.60s\" (did you mean \"%s\"?)",
                     where, table, v->key, near);
}

static enum dyt_status wrong(const struct reader *r, const struct dyti_toml *v,
                             const char *want)
{
    char where[WHERE_BYTES];

    place(r, v, where);
    return DYTI_FAIL(DYT_ERR_CONFIG, "%s: %s must be %s", where,
                     v->key == NULL ? "this" : v->key, want);
}

/* Slower than any link and shorter than any latency: seconds stay numbers that
 * can be read. */
#define LEAST 1e-6

/* 0 or a number in [LEAST, 1e9], times `factor`. */
static enum dyt_status read_real(const struct reader *r,
                                 const struct dyti_toml *v, double factor,
                                 bool may_be_zero, double *out)
{
    double x = v->type == DYTI_TOML_INTEGER ? (double)v->integer : v->real;

    if ((v->type != DYTI_TOML_INTEGER && v->type != DYTI_TOML_FLOAT) ||
        !isfinite(x) || x < 0 || x > 1e9 ||
        (x < LEAST && (x > 0 || !may_be_zero))) {
        return wrong(r, v,
                     may_be_zero ? "0 or a number from 1e-6 to 1e9"
                                 : "a number from 1e-6 to 1e9");
    }
    *out = x * factor;
    return DYT_OK;
}

static enum dyt_status read_count(const struct reader *r,
                                  const struct dyti_toml *v, uint32_t *out)
{
    if (v->type != DYTI_TOML_INTEGER || v->integer < 1 ||
        v->integer > MOST_RANKS) {
        return wrong(r, v, "a whole number from 1 to 1048576");
    }
    *out = (uint32_t)v->integer;
    return DYT_OK;
}

static enum dyt_status read_link(struct reader *r, const struct dyti_toml *v,
                                 struct dyti_link_speed *link)
{
    enum dyt_status st = DYT_OK;
    char table[16];

    if (v->type != DYTI_TOML_TABLE) {
        return wrong(r, v, "a table");
    }
    snprintf(table, sizeof(table), "[%s] ", v->key);
    for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
        const struct dyti_toml *c = &v->child[i];

        if (strcmp(c->key, "gigabytes_per_s") == 0) {
            st = read_real(r, c, 1e9, false, &link->bytes_per_s);
        } else if (strcmp(c->key, "latency_us") == 0) {
            st = read_real(r, c, 1e-6, true, &link->latency_s);
        } else if (strcmp(c->key, "message_us") == 0) {
            st = read_real(r, c, 1e-6, true, &link->message_s);
        } else if (strcmp(c->key, "box_ns") == 0) {
            st = read_real(r, c, 1e-9, true, &link->box_s);
        } else if (strcmp(c->key, "convert_gigabytes_per_s") == 0) {
            st = read_real(r, c, 1e9, true, &link->convert_bytes_per_s);
        } else if (strcmp(c->key, "half_duplex") == 0) {
            link->half_duplex = c->flag;
            st = c->type == DYTI_TOML_BOOL ? DYT_OK
                                           : wrong(r, c, "true or false");
        } else {
            st = unknown(r, c, table, LINK_KEYS);
        }
    }
    return st;
}

static enum dyt_status read_text(struct reader *r, const struct dyti_toml *v)
{
    struct dyti_cluster_file *out = r->out;

    if (v->type != DYTI_TOML_STRING) {
        return wrong(r, v, "text");
    }
    if (strcmp(v->key, "memory") == 0) {
        return dyti_size_from_text(v->text, &out->cluster.rank_memory_bytes)
                   ? DYT_OK
                   : wrong(r, v, "a size, as \"80GiB\"");
    }
    out->name = strdup(v->text);
    return out->name != NULL ? DYT_OK : DYTI_FAIL(DYT_ERR_NOMEM, "a name");
}

static enum dyt_status read_key(struct reader *r, const struct dyti_toml *v)
{
    struct dyti_cluster *c = &r->out->cluster;
    static const char *const link[] = {"self", "host", "nic"};

    for (size_t i = 0; i < DYTI_LINK_CLASS_COUNT; i++) {
        if (strcmp(v->key, link[i]) == 0) {
            return read_link(r, v, &c->link[i]);
        }
    }
    if (strcmp(v->key, "name") == 0 || strcmp(v->key, "memory") == 0) {
        return read_text(r, v);
    }
    if (strcmp(v->key, "hosts") == 0) {
        r->hosts = v;
        return DYT_OK;
    }
    if (strcmp(v->key, "ranks_per_host") == 0) {
        return read_count(r, v, &r->ranks_per_host);
    }
    if (strcmp(v->key, "nic_gigabytes_per_s") == 0) {
        return read_real(r, v, 1e9, true, &c->host_nic_bytes_per_s);
    }
    if (strcmp(v->key, "core_gigabytes_per_s") == 0) {
        return read_real(r, v, 1e9, true, &c->core_bytes_per_s);
    }
    if (strcmp(v->key, "host_gigabytes_per_s") == 0) {
        return read_real(r, v, 1e9, true, &c->host_bytes_per_s);
    }
    if (strcmp(v->key, "cores_per_host") == 0) {
        return read_count(r, v, &c->host_cores);
    }
    if (strcmp(v->key, "source_gigabytes_per_s") == 0) {
        return read_real(r, v, 1e9, true, &c->source_bytes_per_s);
    }
    if (strcmp(v->key, "start_us") == 0) {
        return read_real(r, v, 1e-6, true, &c->start_s);
    }
    return unknown(r, v, "", TOP_KEYS);
}

/* ---- hosts --------------------------------------------------------------- */

/* Ranks of host h. */
static enum dyt_status host_size(const struct reader *r, uint32_t h,
                                 uint32_t *out)
{
    if (r->hosts->type == DYTI_TOML_ARRAY) {
        return read_count(r, &r->hosts->child[h], out);
    }
    *out = r->ranks_per_host;
    return DYT_OK;
}

static enum dyt_status check_hosts(const struct reader *r, uint32_t *out_count)
{
    if (r->hosts == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: hosts is missing: how many, with "
                         "ranks_per_host, or a list of their ranks",
                         r->file);
    }
    if (r->hosts->type == DYTI_TOML_ARRAY) {
        *out_count = r->hosts->child_count;
        if (*out_count == 0 || r->ranks_per_host != 0) {
            return wrong(r, r->hosts,
                         "a list of ranks of each host without "
                         "ranks_per_host beside it, or a number with it");
        }
        return DYT_OK;
    }
    if (r->ranks_per_host == 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: ranks_per_host is missing",
                         r->file);
    }
    return read_count(r, r->hosts, out_count);
}

static enum dyt_status lay_hosts(struct reader *r)
{
    struct dyti_cluster *c = &r->out->cluster;
    uint32_t count = 0;
    uint64_t total = 0;
    enum dyt_status st = check_hosts(r, &count);

    for (uint32_t h = 0; h < count && st == DYT_OK; h++) {
        uint32_t size = 0;

        st = host_size(r, h, &size);
        total += size;
    }
    if (st == DYT_OK && total > MOST_RANKS) {
        st = wrong(r, r->hosts, "at most 1048576 ranks in all");
    }
    if (st != DYT_OK) {
        return st;
    }
    r->out->host = malloc((size_t)total * sizeof(*r->out->host));
    if (r->out->host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", r->file);
    }
    for (uint32_t h = 0; h < count; h++) {
        uint32_t size = 0;

        (void)host_size(r, h, &size);
        for (uint32_t i = 0; i < size; i++) {
            r->out->host[c->rank_count++] = h;
        }
    }
    c->host_count = count;
    c->host = r->out->host;
    return DYT_OK;
}

static enum dyt_status check_links(const struct reader *r)
{
    static const char *const name[] = {"self", "host", "nic"};
    const struct dyti_cluster *c = &r->out->cluster;

    for (size_t i = 0; i < DYTI_LINK_CLASS_COUNT; i++) {
        if (!(c->link[i].bytes_per_s > 0)) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "%s: [%s] gigabytes_per_s is missing", r->file,
                             name[i]);
        }
    }
    return DYT_OK;
}

/* ---- in and out ---------------------------------------------------------- */

static enum dyt_status read_root(const char *file, const struct dyti_toml *root,
                                 struct dyti_cluster_file *out_file)
{
    struct dyti_cluster_file made = {0};
    struct reader r = {.file = file, .out = &made};
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < root->child_count && st == DYT_OK; i++) {
        st = read_key(&r, &root->child[i]);
    }
    st = st != DYT_OK ? st : check_links(&r);
    st = st != DYT_OK ? st : lay_hosts(&r);
    if (st == DYT_OK && made.name == NULL) {
        made.name = strdup(file);
        st = made.name != NULL ? DYT_OK : DYTI_FAIL(DYT_ERR_NOMEM, "%s", file);
    }
    if (st != DYT_OK) {
        dyti_cluster_file_fini(&made);
        return st;
    }
    made.cluster.name = made.name;
    *out_file = made;
    return DYT_OK;
}

enum dyt_status dyti_cluster_file_load(const char *path,
                                       struct dyti_cluster_file *out_file)
{
    struct dyti_toml root = {0};
    enum dyt_status st = dyti_toml_load(path, &root);

    st = st != DYT_OK ? st : read_root(path, &root, out_file);
    dyti_toml_fini(&root);
    return st;
}

enum dyt_status dyti_cluster_file_parse(const char *text, size_t text_bytes,
                                        const char *name,
                                        struct dyti_cluster_file *out_file)
{
    struct dyti_toml root = {0};
    enum dyt_status st = dyti_toml_parse(text, text_bytes, name, &root);

    if (st == DYT_OK) {
        st = read_root(name, &root, out_file);
        dyti_toml_fini(&root);
    }
    return st;
}

enum dyt_status dyti_cluster_file_assume(uint32_t ranks,
                                         struct dyti_cluster_file *out_file)
{
    static const char name[] =
        "assumed (hosts of 8, NVLink 200 GB/s, NIC 25 GB/s each way)";
    struct dyti_cluster_file made = {
        .cluster = {.link = {{.bytes_per_s = 900e9},
                             {.bytes_per_s = 200e9,
                              .latency_s = 8e-6,
                              .message_s = 6e-6},
                             {.bytes_per_s = 25e9,
                              .latency_s = 12e-6,
                              .message_s = 8e-6}}},
        .host = malloc(ranks * sizeof(*made.host) + 1),
        .name = strdup(name)};

    if (made.host == NULL || made.name == NULL) {
        dyti_cluster_file_fini(&made);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", ranks);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        made.host[r] = r / ASSUMED_RANKS_PER_HOST;
    }
    made.cluster.name = made.name;
    made.cluster.rank_count = ranks;
    made.cluster.host_count =
        (ranks + ASSUMED_RANKS_PER_HOST - 1) / ASSUMED_RANKS_PER_HOST;
    made.cluster.host = made.host;
    *out_file = made;
    return DYT_OK;
}

enum dyt_status dyti_cluster_file_open(const char *path, uint32_t ranks,
                                       struct dyti_cluster_file *out_file)
{
    enum dyt_status st;

    if (path == NULL) {
        return dyti_cluster_file_assume(ranks, out_file);
    }
    st = dyti_cluster_file_load(path, out_file);
    if (st == DYT_ERR_IO) {
        DYTI_NOTE("reading a cluster, which is a TOML file such as "
                  "configs/clusters/a800.toml");
    }
    return st;
}

void dyti_cluster_file_fini(struct dyti_cluster_file *file)
{
    free(file->host);
    free(file->name);
    memset(file, 0, sizeof(*file));
}

enum dyt_status dyti_cluster_file_take(const struct dyti_cluster_file *file,
                                       uint32_t ranks,
                                       struct dyti_cluster *out_cluster)
{
    struct dyti_cluster c = file->cluster;

    if (ranks > c.rank_count) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "the layouts need %u ranks, %s has %u: name a larger "
                         "cluster, or smaller degrees",
                         ranks, c.name, c.rank_count);
    }
    c.rank_count = ranks;
    c.host_count = ranks == 0 ? 0 : c.host[ranks - 1] + 1;
    *out_cluster = c;
    return DYT_OK;
}
