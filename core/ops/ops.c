#include "ops/clock.h"
#include "ops/device.h"
#include "ops/group.h"
#include "ops/kernels.h"
#include "ops/memory.h"
#include "ops/mover.h"
#include "ops/tokenizer.h"

const char *dyti_page_kind_name(enum dyti_page_kind kind)
{
    static const char *const name[DYTI_PAGES_COUNT] = {
        [DYTI_PAGES_HUGETLB] = "hugetlb 2 MiB",
        [DYTI_PAGES_THP] = "transparent 2 MiB",
        [DYTI_PAGES_4K] = "4 KiB"};

    return kind < DYTI_PAGES_COUNT ? name[kind] : "?";
}

const char *dyti_device_state_name(enum dyti_device_state state)
{
    static const char *const name[] = {
#define STATE_NAME(id, name) name,
        DYTI_DEVICE_STATE_MAP(STATE_NAME)
#undef STATE_NAME
    };

    return (uint32_t)state < DYTI_DEVICE_STATE_COUNT ? name[state] : "?";
}
