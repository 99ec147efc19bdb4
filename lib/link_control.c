/* The control segment of a link, and the group of its members. */
#include "lib/link_internal.h"

#include "base/checked.h"
#include "comm/shm/shm.h"
#include "lib/module.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static uint64_t page_bytes(void)
{
    return dyti_align_up(dyti_control_bytes(), 4096);
}

uint64_t dyti_link_control_bytes(uint32_t member_count)
{
    return page_bytes() + dyti_group_shm.region_bytes(member_count);
}

enum dyt_status dyti_link_control_make(uint32_t member_count, int *out_fd)
{
    enum dyt_status st = dyti_memfd_open(
        "dynatrain-link", dyti_link_control_bytes(member_count), out_fd);

    if (st != DYT_OK) {
        DYTI_NOTE("making the control segment of a link");
    }
    return st;
}

enum dyt_status dyti_link_control_map(int32_t fd, uint32_t member_count,
                                      void **out_control)
{
    uint64_t bytes = dyti_link_control_bytes(member_count);
    struct stat info;
    void *at;

    if (fstat(fd, &info) != 0 || info.st_size < 0 ||
        (uint64_t)info.st_size < bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the control segment of %u members needs %llu bytes",
                         member_count, (unsigned long long)bytes);
    }
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return DYTI_FAIL(DYT_ERR_IO, "mapping a control segment: %s",
                         strerror(errno));
    }
    *out_control = at;
    return DYT_OK;
}

void dyti_link_control_unmap(void *control, uint32_t member_count)
{
    if (control != NULL) {
        (void)munmap(control, dyti_link_control_bytes(member_count));
    }
}

enum dyt_status dyti_link_open_control(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    struct dyti_group_params group = {.struct_size = sizeof(group),
                                      .name = "link",
                                      .rank = p->rank,
                                      .size = p->member_count,
                                      .timeout_ns = p->timeout_ns,
                                      .oversubscribed =
                                          p->member_count > dyti_hands_cores()};
    void *control = p->control;
    enum dyt_status st = DYT_OK;

    if (control == NULL) {
        st = dyti_link_control_map(p->control_fd, p->member_count,
                                   &link->control);
        control = link->control;
    }
    if (st == DYT_OK) {
        st = dyti_control_open(control, p->member_count, &link->page);
    }
    if (st != DYT_OK) {
        return st;
    }
    group.abort = &link->page->abort;
    if (p->apart != NULL) {
        group.apart = true;
        group.shared = p->apart->shared;
        group.shared_bytes = p->apart->shared_bytes;
        group.changed = p->apart->changed;
        group.changed_arg = p->apart->changed_arg;
        group.address = p->apart->address;
        return dyti_module_group(p->apart->module, &group, &link->all);
    }
    group.shared = (unsigned char *)control + page_bytes();
    group.shared_bytes = dyti_group_shm.region_bytes(p->member_count);
    link->all = (struct dyti_group){
        .ops = &dyti_group_shm, .rank = p->rank, .size = p->member_count};
    return dyti_group_shm.open(&group, &link->all.self);
}

enum dyt_status dyti_link_abort_at(void *control, uint32_t member_count,
                                   uint32_t rank, enum dyt_status status)
{
    struct dyti_control_page *page = NULL;
    enum dyt_status st;

    if (rank >= member_count) {
        return DYTI_FAIL(DYT_ERR_INVALID, "member %u of %u", rank,
                         member_count);
    }
    st = dyti_control_open(control, member_count, &page);
    if (st == DYT_OK) {
        dyti_control_abort(page, &dyti_wait_futex, rank, status);
    }
    return st;
}

enum dyt_status dyti_link_abort(int32_t control_fd, uint32_t member_count,
                                uint32_t rank, enum dyt_status status)
{
    void *control = NULL;
    enum dyt_status st =
        dyti_link_control_map(control_fd, member_count, &control);

    if (st == DYT_OK) {
        st = dyti_link_abort_at(control, member_count, rank, status);
        dyti_link_control_unmap(control, member_count);
    }
    return st;
}
