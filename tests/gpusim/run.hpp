// Threads of a kernel and what they meet at; shared by the files that run them.
#ifndef DYT_GPUSIM_RUN_HPP
#define DYT_GPUSIM_RUN_HPP

#include "sim.hpp"

#include <ucontext.h>

namespace gpusim
{

constexpr uint32_t MANY = UINT32_MAX;

enum class state { ready, at_barrier, at_warp, done };

// What is known of a byte of shared memory.
struct shared_byte {
    uint32_t writer = 0, reader = 0; // thread + 1, MANY
    uint32_t writer_epoch = 0, reader_epoch = 0;
    uint32_t writer_turn = 0, reader_turn = 0; // of the warp
    bool has_value = false, is_atomic = false;
};

struct warp;
struct block;

// Where a thread or the scheduler goes on.
#ifdef __x86_64__
struct place {
    void *sp = nullptr;
};
#else
using place = ucontext_t;
#endif

struct fiber {
    place here;
    unsigned char *stack = nullptr;
    block *home;
    warp *team;
    uint3 index;
    uint32_t linear, lane;
    state what;
    const char *file;
    int line;
    unsigned mask;
    meeting kind;
    uint64_t brought, got[32];
    uint32_t accesses, turns_of;
    std::vector<std::pair<std::pair<const char *, int>, uint32_t>> turns;
};

struct warp {
    uint32_t turn = 0; // exchanges of the whole warp
    std::vector<fiber *> lanes;
    std::vector<sector_access> log;
};

struct block {
    uint3 index;
    std::vector<fiber *> threads;
    std::vector<warp> warps;
    uint32_t live, waiting, epoch;
    std::vector<unsigned char> shared;
    std::vector<shared_byte> known;
    std::map<const void *, size_t> arrays;
};

struct run_state {
    const kernel *what;
    place scheduler;
    fiber *now;
    bool is_ended; // by a fault
    std::deque<fiber *> ready;
    std::vector<fiber *> spare;
    uint64_t idle;      // yields with nothing else done
    const void *bottom; // of the scheduler's stack
    size_t bottom_bytes;
};
extern run_state &run;

// ---- fibers (fiber.cc) -----------------------------------------------------

// One that nobody uses, and what it runs from now on.
fiber *fiber_take();
void fiber_start(fiber *f);
// Until it ends or has to meet others.
void resume(fiber *f);
void to_scheduler(fiber *f, bool for_good);
// Of the thread that runs: the kernel ends with it.  Its stack is never
// unwound: nothing on it may own memory.
[[noreturn]] void stop_with(gpusim_fault kind, cudaError_t error,
                            const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// A fault that the scheduler finds, of a thread.
void found_at(fiber *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

} // namespace gpusim

#endif // DYT_GPUSIM_RUN_HPP
