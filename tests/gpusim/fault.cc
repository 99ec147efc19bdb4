// Faults: counted, and printed unless they are expected.
#include "sim.hpp"

#include <cstdarg>
#include <cstdio>

namespace gpusim
{

static const char *const names[GPUSIM_FAULT_COUNT] = {"out of bounds",
                                                      "misaligned",
                                                      "freed memory",
                                                      "unmapped memory",
                                                      "uninitialised read",
                                                      "shared memory race",
                                                      "shared memory bounds",
                                                      "divergent barrier",
                                                      "missing wait",
                                                      "host access",
                                                      "leak",
                                                      "over the limits",
                                                      "collective"};

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

cudaError_t result(cudaError_t error)
{
    if (sim.sticky != cudaSuccess) {
        error = sim.sticky;
    }
    if (error != cudaSuccess) { // "not ready" too, of which versions differ
        last_error = error;
    }
    return error;
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
