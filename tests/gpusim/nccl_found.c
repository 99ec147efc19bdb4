/* NCCL's library as the device's code finds it, where the simulator is it. */
#include "comm/nccl/calls.h"

#include <stdio.h>

bool dyti_nccl_open(const char *library, struct dyti_nccl_calls *out,
                    struct dyti_group_report *out_report)
{
    int version = 0;

    (void)library;
#define FOUND(f) out->f = f;
    DYTI_NCCL_CALLS(FOUND)
#undef FOUND
    out->ncclCommRegister = ncclCommRegister;
    out->ncclCommDeregister = ncclCommDeregister;
    (void)ncclGetVersion(&version);
    out_report->state = "ready";
    out_report->version = (uint32_t)version;
    snprintf(out_report->text, sizeof(out_report->text), "simulated");
    return true;
}

enum dyt_status dyti_nccl_calls(const struct dyti_nccl_calls **out_calls)
{
    static struct dyti_nccl_calls calls;
    struct dyti_group_report report;

    (void)dyti_nccl_open("", &calls, &report); /* the same from all threads */
    *out_calls = &calls;
    return DYT_OK;
}
