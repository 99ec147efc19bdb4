// Threads of a kernel: fibers that run until they end or have to meet others,
// and how a fault ends them all.
#include "run.hpp"

#include <cstdarg>
#include <cstdio>
#include <sys/mman.h>
#include <unistd.h>

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace gpusim
{

#ifdef WITH_ASAN
constexpr size_t STACK = 256u << 10;
#else
constexpr size_t STACK = 128u << 10;
#endif

// Never destroyed: threads that a fault ended are in it.
run_state &run = *new run_state();

bool in_kernel()
{
    return run.now != nullptr;
}

const char *where_text()
{
    static char text[256];

    text[0] = '\0';
    if (run.now != nullptr) {
        snprintf(text, sizeof(text), "%s block (%u,%u,%u) thread (%u,%u,%u): ",
                 run.what->name.c_str(), run.now->home->index.x,
                 run.now->home->index.y, run.now->home->index.z,
                 run.now->index.x, run.now->index.y, run.now->index.z);
    }
    return text;
}

void to_scheduler(fiber *f, bool for_good)
{
#ifdef WITH_ASAN
    void *fake = nullptr;

    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, run.bottom,
                                   run.bottom_bytes);
    swapcontext(&f->context, &run.scheduler);
    __sanitizer_finish_switch_fiber(fake, &run.bottom, &run.bottom_bytes);
#else
    (void)for_good;
    swapcontext(&f->context, &run.scheduler);
#endif
}

void leave_kernel()
{
    run.is_ended = true;
    for (;;) {
        to_scheduler(run.now, true);
    }
}

// The stack of a thread that ends so is never unwound: nothing on it may own
// memory.
static void stick(gpusim_fault kind, cudaError_t error, const char *format,
                  va_list args)
{
    char text[400];
    int used = snprintf(text, sizeof(text), "%s", where_text());

    vsnprintf(text + used, sizeof(text) - static_cast<size_t>(used), format,
              args);
    note_and_stick(kind, error, text);
    run.is_ended = true;
}

void stop_with(gpusim_fault kind, cudaError_t error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    stick(kind, error, format, args);
    va_end(args);
    leave_kernel();
}

void found_at(fiber *f, const char *format, ...)
{
    va_list args;

    run.now = f;
    va_start(args, format);
    stick(GPUSIM_DIVERGENT, cudaErrorLaunchFailure, format, args);
    va_end(args);
    run.now = nullptr;
}

static void fiber_main()
{
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &run.bottom, &run.bottom_bytes);
#endif
    run.what->body();
    run.now->what = state::done;
    for (;;) {
        to_scheduler(run.now, true);
    }
}

void resume(fiber *f)
{
    run.now = f;
    threadIdx = f->index;
    blockIdx = f->home->index;
#ifdef WITH_ASAN
    void *fake = nullptr;

    __sanitizer_start_switch_fiber(&fake, f->stack, STACK);
    swapcontext(&run.scheduler, &f->context);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    swapcontext(&run.scheduler, &f->context);
#endif
    run.now = nullptr;
}

fiber *fiber_take()
{
    if (run.spare.empty()) {
        auto *f = new fiber();
        size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void *at = mmap(nullptr, STACK + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (at == MAP_FAILED) {
            fprintf(stderr, "gpusim: no memory for a thread's stack\n");
            _exit(1);
        }
        mprotect(at, page, PROT_NONE);
        f->stack = static_cast<unsigned char *>(at) + page;
        return f;
    }
    fiber *f = run.spare.back();

    run.spare.pop_back();
    return f;
}

void fiber_start(fiber *f)
{
#ifdef WITH_ASAN
    __asan_unpoison_memory_region(f->stack, STACK);
#endif
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
    f->what = state::ready;
    f->accesses = f->turns_of = 0;
    f->turns.clear();
    run.ready.push_back(f);
}

} // namespace gpusim
