/* A server's worker: whole tensors in memory of its own, which every version is
 * written into.
 *
 *   receiver ADDRESS VERSION
 *
 * Ends when it holds VERSION. */
#include "weights.h"

#include <dynatrain/session.h>

#include <stdio.h>
#include <stdlib.h>

static float weight[2][ROWS][COLS];

static int say(const char *what)
{
    fprintf(stderr, "receiver: %s: %s\n", what, dyt_error_text());
    return 1;
}

/* A tensor that is held whole needs no more than its name. */
static void describe(struct dyt_row row[2])
{
    for (uint32_t t = 0; t < 2; t++) {
        row[t] = (struct dyt_row){.struct_size = sizeof(row[t]),
                                  .kind = DYT_PARAM,
                                  .dtype = DYT_F32,
                                  .name = tensor_name[t],
                                  .ndim = 2,
                                  .shape = {ROWS, COLS},
                                  .data = weight[t],
                                  .fd = -1};
    }
}

static int check(uint64_t version)
{
    for (uint32_t t = 0; t < 2; t++) {
        for (int64_t r = 0; r < ROWS; r++) {
            for (int64_t c = 0; c < COLS; c++) {
                if (weight[t][r][c] != weight_of(version, t, r, c)) {
                    fprintf(stderr,
                            "receiver: %s[%d][%d] is of another "
                            "version\n",
                            tensor_name[t], (int)r, (int)c);
                    return 1;
                }
            }
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct dyt_session_params join = {.struct_size = sizeof(join),
                                      .role = DYT_ROLE_RECEIVER,
                                      .job = "example",
                                      .timeout_ns = 20000000000};
    struct dyt_row row[2];
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(row[0]),
                            .row = row,
                            .row_count = 2};
    struct dyt_switch_report report = {.struct_size = sizeof(report)};
    dyt_session *session;
    uint64_t last;

    if (argc != 3) {
        fprintf(stderr, "usage: receiver ADDRESS VERSION\n");
        return 2;
    }
    join.address = argv[1];
    last = strtoull(argv[2], NULL, 10);
    describe(row);
    if (dyt_session_join(&join, &session) != DYT_OK) {
        return say("cannot join");
    }
    if (dyt_session_publish(session, &view, NULL) != DYT_OK) {
        return say("cannot publish");
    }
    while (report.version < last) {
        if (dyt_session_receive(session, report.version + 1, -1, &report) !=
            DYT_OK) {
            return say("no new version");
        }
        if (check(report.version) != 0) {
            return 1;
        }
        printf("holds version %llu: %llu bytes in %.3f ms\n",
               (unsigned long long)report.version,
               (unsigned long long)report.moved_bytes,
               (double)report.total_ns * 1e-6);
    }
    dyt_session_leave(session);
    return 0;
}
