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

// ---- changing stacks -------------------------------------------------------

static void fiber_main();

// Most of a kernel's time is spent on this: a few instructions, where
// swapcontext() makes two system calls, and wipes what the address sanitizer
// keeps of a whole stack.  It is told of each change (resume, to_scheduler).
#ifdef __x86_64__

extern "C" void gpusim_go(void **from, void *to);

asm(".text\n"
    ".p2align 4\n"
    ".type gpusim_go, @function\n"
    "gpusim_go:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size gpusim_go, . - gpusim_go\n");

static void go(place &from, place &to)
{
    gpusim_go(&from.sp, to.sp);
}

static void begin(fiber *f)
{
    void **top = reinterpret_cast<void **>(f->stack + STACK);

    *--top = nullptr; // where fiber_main() would return to
    *--top = reinterpret_cast<void *>(&fiber_main);
    for (int i = 0; i < 6; i++) {
        *--top = nullptr; // what is popped on the way
    }
    f->here.sp = top;
}

#else

static void go(place &from, place &to)
{
    swapcontext(&from, &to);
}

static void begin(fiber *f)
{
    getcontext(&f->here);
    f->here.uc_stack.ss_sp = f->stack;
    f->here.uc_stack.ss_size = STACK;
    f->here.uc_link = nullptr;
    makecontext(&f->here, fiber_main, 0);
}

#endif

void to_scheduler(fiber *f, bool for_good)
{
#ifdef WITH_ASAN
    void *fake = nullptr;

    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, run.bottom,
                                   run.bottom_bytes);
    go(f->here, run.scheduler);
    __sanitizer_finish_switch_fiber(fake, &run.bottom, &run.bottom_bytes);
#else
    (void)for_good;
    go(f->here, run.scheduler);
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
    go(run.scheduler, f->here);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    go(run.scheduler, f->here);
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
    begin(f);
    f->what = state::ready;
    f->accesses = f->turns_of = 0;
    f->turns.clear();
    run.ready.push_back(f);
}

} // namespace gpusim
