/* Adds up what is done beside the links. */
#include "explain/work.h"

#include <stdlib.h>

/* What is read and not written, at the speed of a copy, which does both. */
static double reading_more_s(const struct dyti_simulate_inputs *in,
                             uint32_t rank)
{
    double speed = in->cluster->link[DYTI_LINK_SELF].bytes_per_s;

    return in->reads_more != NULL && speed > 0.0
               ? (double)in->reads_more[rank] / 2 / speed
               : 0.0;
}

/* Seconds that each rank's memory is busy, at the speed of a copy (which reads
 * and writes): what it keeps is copied, what it sends is read, what it receives
 * is written. */
static void add_copies(const struct dyti_simulate_inputs *in,
                       const struct dyti_piece *piece, size_t count,
                       double *work_s, struct dyti_work *out)
{
    const struct dyti_cluster *c = in->cluster;
    double speed = c->link[DYTI_LINK_SELF].bytes_per_s;

    for (size_t i = 0; i < count && speed > 0.0; i++) {
        double half = (double)(piece[i].hi - piece[i].lo) / 2;

        work_s[piece[i].from] += half / speed;
        work_s[piece[i].to] += half / speed;
    }
    for (uint32_t r = 0; r < c->rank_count && speed > 0.0; r++) {
        work_s[r] +=
            in->keep_bytes != NULL ? (double)in->keep_bytes[r] / speed : 0.0;
        work_s[r] += reading_more_s(in, r);
        if (work_s[r] > out->seconds) {
            *out = (struct dyti_work){work_s[r], r, false};
        }
    }
}

/* What changing the dtype of bytes adds to moving them. */
static double converting_s(const struct dyti_link_speed *link, uint64_t bytes)
{
    return link->convert_bytes_per_s > 0.0 && link->bytes_per_s > 0.0
               ? (double)bytes *
                     (1.0 / link->convert_bytes_per_s - 1.0 / link->bytes_per_s)
               : 0.0;
}

/* The work of one rank's thread that no piece stands for. */
static double own_work_s(const struct dyti_simulate_inputs *in, uint32_t rank)
{
    const struct dyti_link_speed *self = &in->cluster->link[DYTI_LINK_SELF];
    const struct dyti_link_speed *host = &in->cluster->link[DYTI_LINK_HOST];
    double seconds = 0.0;

    if (in->keep_bytes != NULL && self->bytes_per_s > 0.0) {
        seconds += (double)in->keep_bytes[rank] / self->bytes_per_s;
    }
    if (in->boxes != NULL) {
        const struct dyti_rank_boxes *b = &in->boxes[rank];

        seconds += self->box_s * (double)b->kept +
                   host->box_s * (double)(b->sent + b->received) +
                   converting_s(self, b->converted_kept) +
                   converting_s(host, b->converted_to_send) +
                   converting_s(host, b->converted_received);
        seconds +=
            in->cluster->source_bytes_per_s > 0.0
                ? (double)b->source_bytes / in->cluster->source_bytes_per_s
                : 0.0;
    }
    if (!(in->cluster->source_bytes_per_s > 0.0)) { /* else it is in that */
        seconds += reading_more_s(in, rank);
    }
    return seconds;
}

/* Threads of ranks over the cores of their host. */
static enum dyt_status add_cores(const struct dyti_simulate_inputs *in,
                                 const struct dyti_piece *piece, size_t count,
                                 double *work_s, struct dyti_work *out)
{
    const struct dyti_cluster *c = in->cluster;
    double *host_s = calloc((size_t)c->host_count + 1, sizeof(*host_s));

    if (host_s == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u hosts", c->host_count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct dyti_piece *p = &piece[i];
        const struct dyti_link_speed *link =
            &c->link[dyti_cluster_link(c, p->from, p->to)];
        double seconds = (double)(p->hi - p->lo) / link->bytes_per_s +
                         link->message_s * (p->messages > 0 ? p->messages : 1);

        work_s[p->from] += seconds;
        work_s[p->to] += seconds;
    }
    for (uint32_t r = 0; r < c->rank_count; r++) {
        double *of_host = &host_s[c->host[r]];

        work_s[r] += own_work_s(in, r);
        *of_host += work_s[r] / c->host_cores;
        if (work_s[r] > out->seconds) {
            *out = (struct dyti_work){work_s[r], c->host[r], true};
        }
        if (*of_host > out->seconds) {
            *out = (struct dyti_work){*of_host, c->host[r], true};
        }
    }
    free(host_s);
    return DYT_OK;
}

enum dyt_status dyti_work_of(const struct dyti_simulate_inputs *in,
                             const struct dyti_piece *piece, size_t count,
                             double *work_s, struct dyti_work *out_work)
{
    struct dyti_work work = {0};
    enum dyt_status st = DYT_OK;

    if (in->cluster->host_cores > 0) {
        st = add_cores(in, piece, count, work_s, &work);
    } else {
        add_copies(in, piece, count, work_s, &work);
    }
    if (st == DYT_OK) {
        *out_work = work;
    }
    return st;
}
