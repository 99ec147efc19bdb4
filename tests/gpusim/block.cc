// Grids and blocks: a few blocks are resident at a time, and who of their
// threads goes next is decided by the seed.
#include "run.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace gpusim
{

// ---- blocks ----------------------------------------------------------------

static block *block_start(uint64_t number)
{
    const kernel *k = run.what;
    auto *b = new block();
    uint32_t threads = k->block.x * k->block.y * k->block.z;

    b->index = {static_cast<unsigned>(number % k->grid.x),
                static_cast<unsigned>(number / k->grid.x % k->grid.y),
                static_cast<unsigned>(number / k->grid.x / k->grid.y)};
    b->live = threads;
    b->waiting = b->epoch = 0;
    b->shared.resize(k->shared_bytes, 0xA5);
    b->known.resize(k->shared_bytes);
    b->warps.resize((threads + 31) / 32);
    for (uint32_t t = 0; t < threads; t++) {
        fiber *f = fiber_take();

        f->home = b;
        f->team = &b->warps[t / 32];
        f->team->lanes.push_back(f);
        f->index = {t % k->block.x, t / k->block.x % k->block.y,
                    t / k->block.x / k->block.y};
        f->linear = t;
        f->lane = t % 32;
        b->threads.push_back(f);
        fiber_start(f);
    }
    return b;
}

static void block_end(block *b)
{
    for (auto &w : b->warps) {
        sectors_of_warp(w.log);
    }
    run.spare.insert(run.spare.end(), b->threads.begin(), b->threads.end());
    delete b;
}

// All that are left wait: they go on, if all are here for the same.
static void barrier_end(block *b)
{
    fiber *first = nullptr;

    for (fiber *f : b->threads) {
        if (f->what == state::done) {
            found_at(b->threads[0],
                     "thread %u has ended, others wait at a barrier",
                     f->linear);
            return;
        }
        first = first == nullptr ? f : first;
        if (f->line != first->line || f->file != first->file) {
            found_at(f,
                     "at the barrier of line %d, thread %u at that of line %d",
                     f->line, first->linear, first->line);
            return;
        }
    }
    b->epoch++;
    b->waiting = 0;
    for (fiber *f : b->threads) {
        f->what = state::ready;
        run.ready.push_back(f);
    }
}

void barrier(const char *file, int line)
{
    fiber *f = run.now;

    f->what = state::at_barrier;
    f->file = file;
    f->line = line;
    f->home->waiting++;
    to_scheduler(f, false);
}

// ---- the grid --------------------------------------------------------------

// Nothing can go on: whoever waits, waits for ever.
static void stuck(const std::vector<block *> &resident)
{
    for (block *b : resident) {
        for (fiber *f : b->threads) {
            if (f->what != state::done) {
                found_at(f, "waits at line %d for threads that do not come",
                         f->line);
                return;
            }
        }
    }
}

static void run_fiber(fiber *f)
{
    block *b = f->home;

    resume(f);
    if (run.is_ended) {
        return;
    }
    if (f->what == state::done) {
        b->live--;
    }
    if (b->live > 0 && b->waiting == b->live) {
        barrier_end(b);
    }
}

static fiber *pick()
{
    if (sim.seed != 0) {
        size_t at = random_below(static_cast<uint32_t>(run.ready.size()));

        std::swap(run.ready[0], run.ready[at]);
    }
    fiber *f = run.ready.front();

    run.ready.pop_front();
    return f;
}

void run_kernel(const kernel &what)
{
    std::vector<block *> resident;
    uint64_t count = uint64_t{what.grid.x} * what.grid.y * what.grid.z;
    uint64_t next = 0;

    run.what = &what;
    run.is_ended = false;
    run.idle = 0;
    run.ready.clear();
    gridDim = what.grid;
    blockDim = what.block;
    while (!run.is_ended && (next < count || !resident.empty())) {
        while (next < count && resident.size() < sim.machine.resident) {
            resident.push_back(block_start(next++));
        }
        if (run.ready.empty()) {
            stuck(resident);
            break;
        }
        fiber *f = pick();

        run_fiber(f);
        if (!run.is_ended && f->home->live == 0) {
            for (size_t i = 0; i < resident.size(); i++) {
                if (resident[i] == f->home) {
                    resident.erase(resident.begin() +
                                   static_cast<ptrdiff_t>(i));
                    break;
                }
            }
            block_end(f->home);
        }
    }
    for (block *b : resident) {
        block_end(b);
    }
    sectors_end_kernel();
    sim.launches++;
}

} // namespace gpusim
