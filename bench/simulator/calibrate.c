#include "calibrate.h"

#include <math.h>
#include <string.h>

#define MOST     128u
#define TIMES    12u   /* who has most to do depends on the costs: again */
#define DESCENTS 3000u /* over the coordinates */

/* How often each cost occurs. */
struct counts {
    double of[COST_COUNT];
};

static void count_rank(const struct real_switch *s, uint32_t rank,
                       struct counts *out)
{
    const struct dyti_rank_boxes *b = &s->boxes[rank];

    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < s->pieces.count; i++) {
        const struct dyti_piece *p = &s->pieces.piece[i];
        uint32_t ends = (p->from == rank ? 1u : 0u) + (p->to == rank ? 1u : 0u);

        out->of[COST_BYTE] += ends * (double)(p->hi - p->lo);
        out->of[COST_MESSAGE] += ends * (double)p->messages;
    }
    out->of[COST_BYTE] += (double)s->keep[rank];
    out->of[COST_SOURCE] = (double)b->source_bytes;
    out->of[COST_BOX] = (double)(b->sent + b->received + b->kept);
    out->of[COST_CONVERT] = (double)(b->converted_to_send +
                                     b->converted_received + b->converted_kept);
}

static double sum(const struct counts *c, const double *cost)
{
    double s = 0.0;

    for (int k = 0; k < COST_COUNT; k++) {
        s += c->of[k] * cost[k];
    }
    return s;
}

/* The rank with the most work, or all ranks over the cores: what takes longer
 * with these costs. */
static void count_busiest(const struct real_switch *s,
                          const struct dyti_cluster *cluster,
                          const double *cost, struct counts *out)
{
    struct counts all = {{0}};
    double most = -1.0;

    for (uint32_t r = 0; r < cluster->rank_count; r++) {
        struct counts c;

        count_rank(s, r, &c);
        if (sum(&c, cost) > most) {
            most = sum(&c, cost);
            *out = c;
        }
        for (int k = 0; k < COST_COUNT; k++) {
            all.of[k] += c.of[k] / cluster->host_cores;
        }
    }
    if (sum(&all, cost) > most) {
        *out = all;
    }
    out->of[COST_START] = 1.0;
}

/* Coordinate descent of |A x - 1|², x >= 0; rows are counts over seconds. */
static void solve(const struct counts *row, uint32_t count, double *x)
{
    double scale[COST_COUNT];

    for (int k = 0; k < COST_COUNT; k++) {
        scale[k] = 0.0;
        for (uint32_t i = 0; i < count; i++) {
            scale[k] += row[i].of[k] * row[i].of[k];
        }
    }
    for (uint32_t turn = 0; turn < DESCENTS; turn++) {
        for (int k = 0; k < COST_COUNT; k++) {
            double down = 0.0;

            for (uint32_t i = 0; i < count; i++) {
                down += row[i].of[k] * (1.0 - sum(&row[i], x));
            }
            x[k] = scale[k] > 0.0 ? fmax(0.0, x[k] + down / scale[k]) : 0.0;
        }
    }
}

static double speed(double seconds_a_byte)
{
    return 1.0 / fmax(seconds_a_byte, 1e-13);
}

void calibrate(const struct real_switch *s, uint32_t count,
               struct dyti_cluster *out_cluster)
{
    /* where to start; what is found depends on it only by who is busiest */
    double cost[COST_COUNT] = {3e-4, 2e-10, 1e-10, 5e-8, 1e-6, 0.0};
    struct dyti_link_speed *host = &out_cluster->link[DYTI_LINK_HOST];
    struct dyti_link_speed *self = &out_cluster->link[DYTI_LINK_SELF];
    struct counts row[MOST];

    count = count < MOST ? count : MOST;
    for (uint32_t again = 0; again < TIMES; again++) {
        for (uint32_t i = 0; i < count; i++) {
            double seconds = real_switch_median(&s[i]);

            count_busiest(&s[i], out_cluster, cost, &row[i]);
            for (int k = 0; k < COST_COUNT; k++) {
                row[i].of[k] /= seconds;
            }
        }
        solve(row, count, cost);
    }
    out_cluster->start_s = cost[COST_START];
    out_cluster->source_bytes_per_s = speed(cost[COST_SOURCE]);
    *host = (struct dyti_link_speed){
        .bytes_per_s = speed(cost[COST_BYTE]),
        .message_s = cost[COST_MESSAGE],
        .box_s = cost[COST_BOX],
        .convert_bytes_per_s = speed(cost[COST_BYTE] + cost[COST_CONVERT])};
    *self = (struct dyti_link_speed){
        .bytes_per_s = speed(cost[COST_BYTE]),
        .box_s = cost[COST_BOX],
        .convert_bytes_per_s = speed(cost[COST_BYTE] + cost[COST_CONVERT])};
    /* each byte is packed by one core and unpacked by one */
    out_cluster->host_bytes_per_s =
        host->bytes_per_s * out_cluster->host_cores / 2.0;
}
