// Warps: exchanges among lanes, all of which have to come.
#include "run.hpp"

#include <unistd.h>

namespace gpusim
{

unsigned lane()
{
    return run.now->lane;
}

void lane_must_take_part(unsigned of, unsigned mask, const char *file, int line)
{
    if ((mask >> of & 1u) == 0 || of >= run.now->team->lanes.size()) {
        stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                  "%s:%d: reads from lane %u, which takes no part", file, line,
                  of);
    }
}

// True if all lanes of the mask have come, for the same.
static bool all_here(const fiber *f)
{
    for (uint32_t l = 0; l < 32; l++) {
        if ((f->mask >> l & 1u) == 0) {
            continue;
        }
        if (l >= f->team->lanes.size() ||
            f->team->lanes[l]->what == state::done) {
            stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                      "waits for lane %u, which has ended", l);
        }
        const fiber *other = f->team->lanes[l];

        if (other->what != state::at_warp) {
            return false;
        }
        if (other->mask != f->mask || other->kind != f->kind) {
            stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                      "lane %u meets others, or for something else, at line "
                      "%d, not %d",
                      l, other->line, f->line);
        }
    }
    return true;
}

const uint64_t *exchange(unsigned mask, meeting what, uint64_t value,
                         const char *file, int line)
{
    fiber *f = run.now;

    if ((mask >> f->lane & 1u) == 0) {
        stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                  "%s:%d: a lane that its own mask leaves out", file, line);
    }
    f->what = state::at_warp;
    f->mask = mask;
    f->kind = what;
    f->brought = value;
    f->file = file;
    f->line = line;
    if (!all_here(f)) {
        to_scheduler(f, false);
        return f->got;
    }
    if (__builtin_popcount(mask) == static_cast<int>(f->team->lanes.size())) {
        f->team->turn++;
    }
    for (fiber *other : f->team->lanes) {
        if ((mask >> other->lane & 1u) == 0) {
            continue;
        }
        for (fiber *from : f->team->lanes) {
            other->got[from->lane] = from->brought;
        }
        other->what = state::ready;
        if (other != f) {
            run.ready.push_back(other);
        }
    }
    return f->got;
}

void yield()
{
    fiber *f = run.now;

    if (++run.idle > 1000) {
        usleep(100); // for another process
    }
    if (run.idle > 200000) {
        stop_with(GPUSIM_DIVERGENT, cudaErrorLaunchFailure,
                  "waits for ever for what nobody writes");
    }
    run.ready.push_back(f);
    to_scheduler(f, false);
}

} // namespace gpusim
