#include "contest.h"
#include "bench.h"

static void take_turn(struct player *p, bool counts)
{
    double value[CONTEST_TURNS];
    uint32_t n = p->turn(p->arg, value, CONTEST_TURNS);

    p->out = n == 0;
    for (uint32_t i = 0; i < n && counts && p->count < CONTEST_TURNS; i++) {
        p->value[p->count++] = value[i];
    }
}

void contest(struct player *player, uint32_t count, uint32_t rounds)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!player[i].fresh && !player[i].out) {
            take_turn(&player[i], false);
        }
    }
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t i = 0; i < count; i++) {
            struct player *p = &player[r % 2 == 0 ? i : count - 1 - i];

            if (!p->out) {
                take_turn(p, true);
            }
        }
    }
}

double contest_median(struct player *player)
{
    return player->count > 0 ? bench_median(player->value, player->count) : 0;
}
