/* dynatrain doctor: what this machine has, and what each absence means. */
#include "base/env.h"
#include "cli/backends.h"
#include "cli/commands.h"
#include "cli/exit.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define COPY_BYTES (256ull << 20)

/* First line of a file that begins with `key`, or the first one: "" if none. */
static void file_line(const char *path, const char *key, char *out, size_t n)
{
    FILE *f = fopen(path, "re");
    char line[512];

    out[0] = '\0';
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            const char *colon = strchr(line, ':');
            const char *from =
                key[0] != '\0' && colon != NULL ? colon + 1 : line;

            snprintf(out, n, "%s", from + strspn(from, " \t"));
            out[strcspn(out, "\n")] = '\0';
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

static void row(const char *what, const char *value, const char *means)
{
    printf("%-14s %s\n", what, value);
    if (means != NULL) {
        printf("%-14s   %s\n", "", means);
    }
}

static void show_cpu(void)
{
    const struct dyti_kernel_ops *k = dyti_backends_host()->kernels;
    struct dyti_kernel_params p = {.struct_size = sizeof(p)};
    char name[128], text[256];
    void *self = NULL;

    file_line("/proc/cpuinfo", "model name", name, sizeof(name));
    snprintf(text, sizeof(text), "%s, %ld cores", name,
             sysconf(_SC_NPROCESSORS_ONLN));
    row("processor", text, NULL);
    if (k->open(&p, &self) != DYT_OK) {
        row("kernels", dyti_error_message(), NULL);
        return;
    }
    snprintf(text, sizeof(text), "%s", k->isa(self));
    row("instructions", text,
        strcmp(text, "avx512_bf16") == 0
            ? NULL
            : "without AVX-512-BF16, bf16 saves memory and bandwidth, not "
              "arithmetic");
    k->close(self);
}

static void show_memory(void)
{
    const struct dyti_memory_ops *m = dyti_backends_host()->memory;
    char total[64], free_[64], huge[64], thp[128], text[256];
    enum dyti_page_kind kind = m->probe(64u << 20);

    file_line("/proc/meminfo", "MemTotal", total, sizeof(total));
    file_line("/proc/meminfo", "MemAvailable", free_, sizeof(free_));
    file_line("/proc/meminfo", "HugePages_Free", huge, sizeof(huge));
    file_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "", thp,
              sizeof(thp));
    snprintf(text, sizeof(text), "%s in all, %s available", total, free_);
    row("memory", text, NULL);
    snprintf(text, sizeof(text),
             "%s for shared memory (free hugetlb pages: "
             "%s; shmem THP: %s)",
             dyti_page_kind_name(kind), huge, thp);
    row("pages", text,
        kind == DYTI_PAGES_HUGETLB ? NULL
        : kind == DYTI_PAGES_THP
            ? "better still, as root: sysctl vm.nr_hugepages=N (2 MiB "
              "each, as many as a run's memory)"
            : "switches of large models will be slow; as root: sysctl "
              "vm.nr_hugepages=N, or echo advise > "
              "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

static void show_bandwidth(void)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    double best = 0.0;
    char text[64];

    if (from == NULL || to == NULL) {
        row("memcpy", "not measured: no memory", NULL);
        free(from);
        free(to);
        return;
    }
    memset(from, 1, COPY_BYTES);
    memset(to, 2, COPY_BYTES);
    for (int i = 0; i < 5; i++) {
        int64_t start = dyti_now_ns();

        memcpy(to, from, COPY_BYTES);
        start = dyti_now_ns() - start;
        if ((double)COPY_BYTES / (double)start > best) {
            best = (double)COPY_BYTES / (double)start;
        }
    }
    snprintf(text, sizeof(text), "%.1f GB/s on one core", best);
    row("memcpy", text, NULL);
    free(from);
    free(to);
}

static void show_limits(void)
{
    struct rlimit files, memory;
    struct statvfs disk;
    char text[160], cache[4096];

    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_AS, &memory);
    snprintf(text, sizeof(text), "%llu open files, address space %s",
             (unsigned long long)files.rlim_cur,
             memory.rlim_cur == RLIM_INFINITY ? "unlimited" : "LIMITED");
    row("limits", text,
        files.rlim_cur < 256 ? "raise it: ulimit -n 1024" : NULL);
    if (statvfs(".", &disk) == 0) {
        snprintf(text, sizeof(text), "%.1f GB free here",
                 (double)disk.f_bavail * (double)disk.f_frsize * 1e-9);
        row("disk", text, NULL);
    }
    if (dyti_env_cache_dir(cache, sizeof(cache)) == DYT_OK) {
        row("cache", cache, NULL);
    } else {
        row("cache", "none", "set HOME or DYNATRAIN_CACHE to keep models");
    }
}

static const struct argp argp = {
    NULL,
    NULL,
    NULL,
    "Says what this machine has: processor, memory pages, bandwidth, devices, "
    "limits, and what each absence means.\v"
    "Example:\n  dynatrain doctor\n",
    NULL,
    NULL,
    NULL};

int dyti_cmd_doctor(int argc, char **argv)
{
    const struct dyti_backends *b = dyti_backends_host();
    char text[160];

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    show_cpu();
    show_memory();
    show_bandwidth();
    row("devices", "host",
        "the cuda device is not part of this build; the host device needs "
        "nothing of it");
    snprintf(text, sizeof(text), "groups %s, mover %s, kernels %s",
             b->group->name, b->mover->name, b->kernels->name);
    row("backends", text, NULL);
    show_limits();
    return DYTI_EXIT_OK;
}
