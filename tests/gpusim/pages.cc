// Who may touch device memory: work that runs on the device.  Its pages are
// closed; what such work touches is opened for it, and closed when it has
// ended. Host code that touches them is named.
#include "sim.hpp"

#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace gpusim
{

unsigned char *pages_of(uint64_t base)
{
    auto at = reinterpret_cast<uint64_t>(sim.memory.base);

    return sim.memory.base + (base - at) / PAGE * PAGE;
}

uint64_t pages_bytes(uint64_t base, uint64_t bytes)
{
    return up(base + bytes - reinterpret_cast<uint64_t>(pages_of(base)), PAGE);
}

void open_pages(uint64_t base, range &r)
{
    if (!r.is_open && r.readable) {
        mprotect(pages_of(base), pages_bytes(base, r.bytes),
                 r.is_writable ? PROT_READ | PROT_WRITE : PROT_READ);
        r.is_open = true;
        sim.opened.push_back(base);
    }
}

void close_pages()
{
    for (uint64_t base : sim.opened) {
        auto found = sim.live.find(base);

        if (found != sim.live.end() && found->second.is_open) {
            found->second.is_open = false;
            mprotect(pages_of(base), pages_bytes(base, found->second.bytes),
                     PROT_NONE);
        }
    }
    sim.opened.clear();
}

// ---- whose thread ----------------------------------------------------------

as_device::as_device()
{
    sim.lock.lock();
    if (sim.device_depth++ == 0) {
        sim.device_thread = pthread_self();
        watch_signals();
    }
}

as_device::~as_device()
{
    if (--sim.device_depth == 0) {
        close_pages();
    }
    sim.lock.unlock();
}

static bool is_device()
{
    return sim.device_depth > 0 &&
           pthread_equal(sim.device_thread, pthread_self()) != 0;
}

// ---- who touches them from outside -----------------------------------------

// The allocation in whose pages an address is.
static std::map<uint64_t, range>::iterator owner_of(const void *ptr)
{
    auto address = reinterpret_cast<uint64_t>(ptr);
    auto found = below(sim.live, up(address + 1, PAGE) - 1);

    if (found != sim.live.end() &&
        address >= reinterpret_cast<uint64_t>(pages_of(found->first)) +
                       pages_bytes(found->first, found->second.bytes)) {
        found = sim.live.end();
    }
    return found;
}

// Where in the program, for addr2line.
static const char *code_text(void *context)
{
    static char text[256];
    void *code = nullptr;
    Dl_info info = {};

#if defined(__x86_64__)
    code = reinterpret_cast<void *>(
        static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    code = reinterpret_cast<void *>(
        static_cast<ucontext_t *>(context)->uc_mcontext.pc);
#else
    (void)context;
#endif
    if (code == nullptr || dladdr(code, &info) == 0) {
        return "code that has no name";
    }
    snprintf(text, sizeof(text), "%s+0x%zx", info.dli_fname,
             static_cast<size_t>(static_cast<char *>(code) -
                                 static_cast<char *>(info.dli_fbase)));
    return text;
}

static void host_touches(const void *ptr, uint64_t base, uint64_t bytes,
                         void *context)
{
    note(GPUSIM_HOST_ACCESS,
         "the host touches byte %lld of an allocation of %llu bytes of device "
         "memory (%p), at %s",
         static_cast<long long>(reinterpret_cast<uint64_t>(ptr) - base),
         static_cast<unsigned long long>(bytes), ptr, code_text(context));
}

static struct sigaction before_segv, before_bus;

// An access of the device that nothing forbids goes on, and so does the host's
// once it is named: the test has failed already.
static bool goes_on(siginfo_t *info, void *context)
{
    auto found = owner_of(info->si_addr);

    if (found == sim.live.end() || found->second.is_open ||
        !found->second.readable ||
        (in_kernel() && is_device() && !reachable(found->second))) {
        return false;
    }
    if (!is_device()) {
        host_touches(info->si_addr, found->first, found->second.bytes, context);
    }
    open_pages(found->first, found->second);
    return true;
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    gpusim_fault kind = GPUSIM_OUT_OF_BOUNDS;
    const char *wrong = nullptr;
    guard hold(sim.lock);

    if (in_arena(info->si_addr)) {
        if (goes_on(info, context)) {
            return;
        }
        wrong = wrong_with(info->si_addr, 1, true, &kind);
    }
    if (is_device() && in_kernel()) {
        char text[400];

        snprintf(text, sizeof(text), "%s%s at %p", where_text(),
                 wrong != nullptr ? wrong : "no device memory", info->si_addr);
        note_and_stick(kind, cudaErrorIllegalAddress, text);
        sim.lock.unlock(); // hold is never destroyed
        leave_kernel();
    }
    if (wrong != nullptr) {
        note(kind, "the host touches %p, at %s: %s", info->si_addr,
             code_text(context), wrong);
    }
    // And again, without us.
    sigaction(number, number == SIGBUS ? &before_bus : &before_segv, nullptr);
}

static void watch(int number, struct sigaction *before)
{
    struct sigaction action = {}, now = {};

    sigaction(number, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_signal) {
        return;
    }
    *before = now;
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(number, &action, nullptr);
}

void watch_signals()
{
    watch(SIGSEGV, &before_segv);
    watch(SIGBUS, &before_bus);
}

} // namespace gpusim
