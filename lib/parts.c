#include "lib/parts.h"

#include "base/hash.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- memory to message --------------------------------------------------- */

static struct dyti_msg_extent extent_out(const struct dyti_extent *e)
{
    return (struct dyti_msg_extent){.offset = e->offset,
                                    .bytes = e->bytes,
                                    .address = e->address,
                                    .fd_offset = e->fd_offset,
                                    .device = e->device,
                                    .inode = e->inode,
                                    .fd = e->fd,
                                    .kind = e->kind};
}

static struct dyti_extent extent_in(const struct dyti_msg_extent *e)
{
    return (struct dyti_extent){.offset = e->offset,
                                .bytes = e->bytes,
                                .address = e->address,
                                .fd_offset = e->fd_offset,
                                .device = e->device,
                                .inode = e->inode,
                                .fd = e->fd,
                                .kind = e->kind};
}

static enum dyt_status part_alloc(uint32_t extents, uint32_t shards,
                                  struct dyti_msg_part *out)
{
    *out =
        (struct dyti_msg_part){.extent_count = extents, .shard_count = shards};
    out->extent = calloc(extents + 1u, sizeof(*out->extent));
    out->shard = calloc(shards + 1u, sizeof(*out->shard));
    if (out->extent != NULL && out->shard != NULL) {
        return DYT_OK;
    }
    dyti_msg_part_fini(out);
    return DYTI_FAIL(DYT_ERR_NOMEM, "%u extents, %u shards", extents, shards);
}

enum dyt_status dyti_part_from_memory(const struct dyti_memory_view *memory,
                                      struct dyti_msg_part *out_part)
{
    struct dyti_msg_part p;
    enum dyt_status st =
        part_alloc(memory->extent_count, memory->view.shard_count, &p);

    if (st != DYT_OK) {
        return st;
    }
    p.pid = memory->pid;
    p.pid_start = memory->pid_start;
    memcpy(p.region_bytes, memory->view.region_bytes, sizeof(p.region_bytes));
    for (uint32_t i = 0; i < p.extent_count; i++) {
        p.extent[i] = extent_out(&memory->extent[i]);
    }
    if (p.shard_count > 0) {
        memcpy(p.shard, memory->view.shard, p.shard_count * sizeof(*p.shard));
    }
    *out_part = p;
    return DYT_OK;
}

/* ---- and back ------------------------------------------------------------ */

static enum dyt_status check_shard(const struct dyti_model *catalogue,
                                   const struct dyti_msg_part *part, uint32_t i)
{
    const struct dyti_shard *s = &part->shard[i];
    const struct dyti_tensor *t = s->tensor < catalogue->tensor_count
                                      ? &catalogue->tensor[s->tensor]
                                      : NULL;
    bool ok = t != NULL && s->kind < DYTI_KIND_COUNT &&
              s->dtype < DYTI_DTYPE_COUNT && s->box.ndim == t->ndim &&
              (i == 0 || part->shard[i - 1].kind <= s->kind) &&
              s->offset <= part->region_bytes[s->kind];

    for (uint32_t d = 0; ok && d < t->ndim; d++) {
        ok = s->box.lo[d] >= 0 && s->box.lo[d] <= s->box.hi[d] &&
             s->box.hi[d] <= t->shape[d];
    }
    return ok ? DYT_OK
              : DYTI_FAIL(DYT_ERR_FORMAT,
                          "shard %u of a member's memory is of no tensor of "
                          "the catalogue, or lies outside of it",
                          i);
}

static enum dyt_status fill_view(const struct dyti_model *catalogue,
                                 const struct dyti_msg_part *part,
                                 struct dyti_view *view)
{
    enum dyt_status st = DYT_OK;

    memcpy(view->region_bytes, part->region_bytes, sizeof(view->region_bytes));
    view->shard_count = part->shard_count;
    view->shard = calloc(part->shard_count + 1u, sizeof(*view->shard));
    if (view->shard == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u shards", part->shard_count);
    }
    for (uint32_t i = 0; i < part->shard_count && st == DYT_OK; i++) {
        st = check_shard(catalogue, part, i);
        view->shard[i] = part->shard[i];
        view->kind_first[st == DYT_OK ? part->shard[i].kind + 1u : 0]++;
    }
    view->kind_first[0] = 0;
    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        view->kind_first[k + 1] += view->kind_first[k];
    }
    view->part.member = true;
    return st;
}

enum dyt_status dyti_part_to_memory(const struct dyti_model *catalogue,
                                    const struct dyti_msg_part *part,
                                    struct dyti_memory_view *out_memory)
{
    struct dyti_memory_view m = {.pid = part->pid,
                                 .pid_start = part->pid_start,
                                 .extent_count = part->extent_count};
    enum dyt_status st = DYT_OK;

    m.extent = calloc(part->extent_count + 1u, sizeof(*m.extent));
    if (m.extent == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u extents", part->extent_count);
    }
    for (uint32_t i = 0; i < part->extent_count && st == DYT_OK; i++) {
        m.extent[i] = extent_in(&part->extent[i]);
        if (m.extent[i].kind >= DYTI_KIND_COUNT) {
            st = DYTI_FAIL(DYT_ERR_FORMAT, "extent %u is of kind %u", i,
                           m.extent[i].kind);
        }
    }
    st = st != DYT_OK ? st : fill_view(catalogue, part, &m.view);
    if (st != DYT_OK) {
        dyti_memory_view_fini(&m);
        return st;
    }
    *out_memory = m;
    return DYT_OK;
}

/* ---- catalogues ---------------------------------------------------------- */

enum dyt_status dyti_catalogue_to_message(const struct dyti_model *catalogue,
                                          struct dyti_msg_catalogue *out)
{
    struct dyti_msg_catalogue m = {.tensor_count = catalogue->tensor_count,
                                   .fingerprint = catalogue->fingerprint};

    m.tensor = calloc(m.tensor_count + 1u, sizeof(*m.tensor));
    for (uint32_t i = 0; m.tensor != NULL && i < m.tensor_count; i++) {
        const struct dyti_tensor *t = &catalogue->tensor[i];
        struct dyti_msg_tensor *to = &m.tensor[i];

        *to = (struct dyti_msg_tensor){.name = strdup(t->name),
                                       .ndim = t->ndim,
                                       .kinds = t->kinds,
                                       .layer = t->layer,
                                       .expert = t->expert,
                                       .fixed_dtype = t->fixed_dtype,
                                       .dtype = t->dtype};
        memcpy(to->shape, t->shape, sizeof(to->shape));
        if (to->name == NULL) {
            m.tensor_count = i;
            dyti_msg_catalogue_fini(&m);
        }
    }
    if (m.tensor == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a catalogue of %u tensors",
                         catalogue->tensor_count);
    }
    *out = m;
    return DYT_OK;
}

enum dyt_status dyti_catalogue_from_message(
    const struct dyti_msg_catalogue *message, struct dyti_model **out_model)
{
    struct dyti_listed_desc *list =
        calloc(message->tensor_count + 1u, sizeof(*list));
    struct dyti_model *model = NULL;
    enum dyt_status st;

    if (list == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a catalogue of %u tensors",
                         message->tensor_count);
    }
    for (uint32_t i = 0; i < message->tensor_count; i++) {
        const struct dyti_msg_tensor *t = &message->tensor[i];

        list[i] = (struct dyti_listed_desc){.name = t->name,
                                            .ndim = t->ndim,
                                            .kinds = t->kinds,
                                            .layer = t->layer,
                                            .expert = t->expert,
                                            .fixed_dtype = t->fixed_dtype,
                                            .dtype = (enum dyti_dtype)t->dtype};
        memcpy(list[i].shape, t->shape, sizeof(list[i].shape));
    }
    st = dyti_model_build_listed(list, message->tensor_count, &model);
    free(list);
    if (st == DYT_OK && model->fingerprint != message->fingerprint) {
        dyti_model_destroy(model);
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "the manager's catalogue has fingerprint %016llx, "
                         "read here it has %016llx",
                         (unsigned long long)message->fingerprint,
                         (unsigned long long)model->fingerprint);
    }
    if (st == DYT_OK) {
        *out_model = model;
    }
    return st;
}

/* ---- hosts --------------------------------------------------------------- */

static uint64_t mix_bytes(uint64_t h, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        h = dyti_mix64(h ^ (unsigned char)bytes[i]);
    }
    return h;
}

uint64_t dyti_host_id(void)
{
    char text[256] = "";
    uint64_t h = 1;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    ssize_t got;

    if (f != NULL) {
        got = (ssize_t)fread(text, 1, sizeof(text), f);
        h = mix_bytes(h, text, got > 0 ? (size_t)got : 0);
        fclose(f);
    }
    got = readlink("/proc/self/ns/pid", text, sizeof(text));
    return mix_bytes(h, text, got > 0 ? (size_t)got : 0);
}

uint64_t dyti_host_named(const char *name)
{
    return name == NULL ? dyti_host_id() : mix_bytes(2, name, strlen(name));
}

/* The address from which a datagram to `host` would go; none is sent. */
static bool address_towards(const char *host, const char *port, char *out,
                            size_t out_bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list = NULL;
    struct sockaddr_storage own;
    socklen_t own_bytes = sizeof(own);
    bool found = false;

    if (getaddrinfo(host, port, &hints, &list) != 0) {
        return false;
    }
    for (const struct addrinfo *a = list; a != NULL && !found; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        found = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
                getnameinfo((struct sockaddr *)&own, own_bytes, out,
                            (socklen_t)out_bytes, NULL, 0, NI_NUMERICHOST) == 0;
        if (fd >= 0) {
            close(fd);
        }
    }
    freeaddrinfo(list);
    return found;
}

void dyti_host_address(const char *manager, char *out, size_t out_bytes)
{
    char host[256];
    const char *at = strncmp(manager, "tcp:", 4) == 0 ? manager + 4 : NULL;
    const char *colon;
    size_t n;

    if (at != NULL) {
        at += strncmp(at, "//", 2) == 0 ? 2 : 0;
        colon = strrchr(at, ':');
        n = colon != NULL ? (size_t)(colon - at) : 0;
        if (n > 1 && at[0] == '[' && at[n - 1] == ']') {
            at++;
            n -= 2;
        }
        if (n > 0 && n < sizeof(host)) {
            memcpy(host, at, n);
            host[n] = '\0';
            if (address_towards(host, colon + 1, out, out_bytes)) {
                return;
            }
        }
    }
    snprintf(out, out_bytes, "127.0.0.1");
}
