// Errors on purpose: the n-th call of a name, or of any, and the n-th piece of
// work that runs.
#include "sim.hpp"

#include "include/cuda.h"

#include <cstring>

namespace gpusim
{

static struct {
    std::string name; // "": of any
    bool is_set;
    uint64_t left; // calls until it
    int error;     // 0: unknown
    uint64_t work_left;
    cudaError_t work_error;
    bool has_happened;
} plan;

// Calls that give things back or only say something: nobody can do anything
// about their failing, so that "any" leaves them out.
static bool is_left_out(const char *name)
{
    static const char *const words[] = {"Free",  "Destroy", "Release",
                                        "Unmap", "Close",   "Get"};

    for (const char *word : words) {
        if (strstr(name, word) != nullptr) {
            return true;
        }
    }
    return false;
}

injected call(const char *name)
{
    bool is_runtime = strncmp(name, "cuda", 4) == 0;
    int error = plan.error;

    if (!plan.is_set ||
        (plan.name.empty() ? is_left_out(name) : plan.name != name) ||
        --plan.left > 0) {
        return {0};
    }
    plan.is_set = false;
    plan.has_happened = true;
    if (error == 0) {
        error = is_runtime ? static_cast<int>(cudaErrorUnknown)
                           : static_cast<int>(CUDA_ERROR_UNKNOWN);
    }
    if (is_runtime || strcmp(name, "launch") == 0) {
        last_error = static_cast<cudaError_t>(error);
    }
    return {error};
}

cudaError_t injected_into_work()
{
    if (plan.work_left == 0 || --plan.work_left > 0) {
        return cudaSuccess;
    }
    plan.has_happened = true;
    return plan.work_error;
}

void inject_nothing()
{
    plan = {};
}

} // namespace gpusim

using namespace gpusim;

void gpusim_fail_call(const char *name, uint64_t nth, int error)
{
    guard hold(sim.lock);

    plan.name = name == nullptr ? "" : name;
    plan.is_set = nth > 0;
    plan.left = nth;
    plan.error = error;
    plan.has_happened = false;
}

void gpusim_fail_work(uint64_t nth, int error)
{
    guard hold(sim.lock);

    plan.work_left = nth;
    plan.work_error = static_cast<cudaError_t>(error);
    plan.has_happened = false;
}

bool gpusim_has_failed(void)
{
    guard hold(sim.lock);

    return plan.has_happened;
}
