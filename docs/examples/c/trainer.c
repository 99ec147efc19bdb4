/* A trainer of two ranks that knows nothing of its receivers.
 *
 *   trainer ADDRESS RANK VERSIONS
 *
 * Each rank holds half of the rows of each tensor in memory of its own, writes
 * a new version into them, and offers it.  Rank 0 hosts the session. */
#include "weights.h"

#include <dynatrain/session.h>

#include <stdio.h>
#include <stdlib.h>

#define RANKS 2

static float weight[2][ROWS / RANKS][COLS];

static int say(const char *what)
{
    fprintf(stderr, "trainer: %s: %s\n", what, dyt_error_text());
    return 1;
}

/* "These are rows lo … hi of a tensor of so many." */
static void describe(uint32_t rank, struct dyt_row row[2],
                     struct dyt_piece piece[2])
{
    for (uint32_t t = 0; t < 2; t++) {
        int64_t lo = (int64_t)rank * ROWS / RANKS;

        piece[t] =
            (struct dyt_piece){.struct_size = sizeof(piece[t]),
                               .tensor = tensor_name[t],
                               .box = {2, {lo, 0}, {lo + ROWS / RANKS, COLS}}};
        row[t] = (struct dyt_row){.struct_size = sizeof(row[t]),
                                  .kind = DYT_PARAM,
                                  .dtype = DYT_F32,
                                  .name = tensor_name[t],
                                  .ndim = 2,
                                  .shape = {ROWS / RANKS, COLS},
                                  .global_shape = {ROWS, COLS},
                                  .data = weight[t],
                                  .fd = -1,
                                  .piece = &piece[t],
                                  .piece_count = 1,
                                  .piece_struct_size = sizeof(piece[t])};
    }
}

static void train(uint32_t rank, uint64_t version)
{
    for (uint32_t t = 0; t < 2; t++) {
        for (int64_t r = 0; r < ROWS / RANKS; r++) {
            for (int64_t c = 0; c < COLS; c++) {
                weight[t][r][c] =
                    weight_of(version, t, (int64_t)rank * ROWS / RANKS + r, c);
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct dyt_session_params join = {.struct_size = sizeof(join),
                                      .role = DYT_ROLE_TRAINER,
                                      .job = "example",
                                      .size = RANKS,
                                      .timeout_ns = 20000000000};
    struct dyt_piece piece[2];
    struct dyt_row row[2];
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(row[0]),
                            .row = row,
                            .row_count = 2};
    dyt_session *session;
    uint64_t versions;

    if (argc != 4) {
        fprintf(stderr, "usage: trainer ADDRESS RANK VERSIONS\n");
        return 2;
    }
    join.address = argv[1];
    join.rank = (uint32_t)strtoul(argv[2], NULL, 10);
    versions = strtoull(argv[3], NULL, 10);
    describe(join.rank, row, piece);
    if (dyt_session_join(&join, &session) != DYT_OK) {
        return say("cannot join");
    }
    if (dyt_session_publish(session, &view, NULL) != DYT_OK) {
        return say("cannot publish");
    }
    for (uint64_t v = 1; v <= versions; v++) {
        struct dyt_offer_params offer = {.struct_size = sizeof(offer),
                                         .version = v};
        dyt_ticket *ticket;

        train(join.rank, v);
        if (dyt_session_offer(session, &offer, &ticket) != DYT_OK) {
            return say("cannot offer");
        }
        if (dyt_ticket_wait(ticket, -1) != DYT_OK) { /* until they have it */
            return say("the offer was not taken");
        }
        dyt_ticket_destroy(ticket);
        printf("version %llu is out\n", (unsigned long long)v);
    }
    dyt_session_leave(session);
    return 0;
}
