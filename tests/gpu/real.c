/* What tests say to the simulator (gpusim.h), where there is a device: nothing
 * is chosen, counted or found.  The tests themselves are the same. */
#include "gpusim/gpusim.h"

#include <string.h>

bool gpusim_simulates(void)
{
    return false;
}

void gpusim_reset(void)
{
}

void gpusim_set_machine(const struct gpusim_machine *machine)
{
    (void)machine;
}

void gpusim_get_machine(struct gpusim_machine *out_machine)
{
    memset(out_machine, 0, sizeof(*out_machine));
}

void gpusim_set_order(enum gpusim_order order, uint64_t seed)
{
    (void)order;
    (void)seed;
}

void gpusim_expect(enum gpusim_fault kind)
{
    (void)kind;
}

uint64_t gpusim_faults(enum gpusim_fault kind)
{
    (void)kind;
    return 0;
}

uint64_t gpusim_unexpected(void)
{
    return 0;
}

const char *gpusim_fault_text(void)
{
    return "";
}

uint64_t gpusim_leaks(void)
{
    return 0;
}

void gpusim_traffic_clear(void)
{
}

void gpusim_traffic_get(struct gpusim_traffic *out_traffic)
{
    memset(out_traffic, 0, sizeof(*out_traffic));
}

uint64_t gpusim_launches(void)
{
    return 0;
}

uint64_t gpusim_late_loads(void)
{
    return 0;
}

uint64_t gpusim_uploads(void)
{
    return 0;
}

uint64_t gpusim_held_bytes(void)
{
    return 0;
}

void gpusim_fail_call(const char *name, uint64_t nth, int error)
{
    (void)name;
    (void)nth;
    (void)error;
}

void gpusim_fail_work(uint64_t nth, int error)
{
    (void)nth;
    (void)error;
}

bool gpusim_has_failed(void)
{
    return false;
}

void gpusim_cublas_add(const char *name)
{
    (void)name; /* the toolkit's own is found, or refused by name */
}
