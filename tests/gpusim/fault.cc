// Faults: counted, printed, and for plain pointers caught by a signal.
#include "sim.hpp"

#include <csignal>
#include <cstdarg>
#include <cstdio>

namespace gpusim
{

static const char *const names[GPUSIM_FAULT_COUNT] = {
    "out of bounds",        "misaligned",
    "freed memory",         "unmapped memory",
    "uninitialised read",   "shared memory race",
    "shared memory bounds", "divergent barrier",
    "missing wait",         "leak",
    "over the limits"};

void note(gpusim_fault kind, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sim.faults[kind]++;
    sim.fault_text = std::string(names[kind]) + ": " + text;
    if (!sim.expected[kind]) {
        sim.unexpected++;
        fprintf(stderr, "gpusim: %s\n", sim.fault_text.c_str());
    }
}

void note_and_stick(gpusim_fault kind, cudaError_t error, const char *text)
{
    note(kind, "%s", text);
    if (sim.sticky == cudaSuccess) {
        sim.sticky = error;
    }
}

static void on_signal(int number, siginfo_t *info, void *)
{
    gpusim_fault kind = GPUSIM_OUT_OF_BOUNDS;
    const char *wrong = nullptr;

    if (in_arena(info->si_addr)) {
        wrong = wrong_with(info->si_addr, 1, true, &kind);
    }
    if (in_kernel()) {
        char text[400];

        snprintf(text, sizeof(text), "%s%s at %p", where_text(),
                 wrong != nullptr ? wrong : "no device memory", info->si_addr);
        note_and_stick(kind, cudaErrorIllegalAddress, text);
        leave_kernel();
    }
    signal(number, SIG_DFL); // and again, without us
}

static struct sigaction before_segv, before_bus;

void catch_signals(bool on)
{
    struct sigaction action = {};

    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, on ? &action : &before_segv,
              on ? &before_segv : nullptr);
    sigaction(SIGBUS, on ? &action : &before_bus, on ? &before_bus : nullptr);
}

} // namespace gpusim

using namespace gpusim;

void gpusim_expect(gpusim_fault kind)
{
    guard hold(sim.lock);

    sim.expected[kind] = true;
}

uint64_t gpusim_faults(gpusim_fault kind)
{
    return sim.faults[kind];
}

uint64_t gpusim_unexpected(void)
{
    return sim.unexpected;
}

const char *gpusim_fault_text(void)
{
    return sim.fault_text.c_str();
}

const char *gpusim_fault_name(gpusim_fault kind)
{
    return kind < GPUSIM_FAULT_COUNT ? names[kind] : "?";
}
