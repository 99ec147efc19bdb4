/* dynatrain doctor: what this machine has, and what each absence means. */
#include "base/env.h"
#include "base/json_out.h"
#include "cli/backends.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/exit.h"
#include "explain/words.h"

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

/* One finding.  json NULL: for people, as it is found. */
static void row(struct dyti_json *json, const char *what, const char *value,
                const char *means)
{
    if (json != NULL) {
        dyti_json_begin_object(json, what);
        dyti_json_text(json, "value", value);
        dyti_json_text(json, "means", means);
        dyti_json_end(json);
        return;
    }
    printf("%-14s %s\n", what, value);
    if (means != NULL) {
        printf("%-14s   %s\n", "", means);
    }
}

static void show_cpu(struct dyti_json *json)
{
    const struct dyti_kernel_ops *k = dyti_backends_host()->kernels;
    struct dyti_kernel_params p = {.struct_size = sizeof(p)};
    char name[128], text[256];
    void *self = NULL;

    file_line("/proc/cpuinfo", "model name", name, sizeof(name));
    snprintf(text, sizeof(text), "%s, %ld cores", name,
             sysconf(_SC_NPROCESSORS_ONLN));
    row(json, "processor", text, NULL);
    if (k->open(&p, &self) != DYT_OK) {
        row(json, "kernels", dyti_error_message(), NULL);
        return;
    }
    snprintf(text, sizeof(text), "%s", k->isa(self));
    row(json, "instructions", text,
        strcmp(text, "avx512_bf16") == 0
            ? NULL
            : "without AVX-512-BF16, bf16 saves memory and bandwidth, not "
              "arithmetic");
    k->close(self);
}

/* "24684096 kB" of /proc/meminfo as "23.5 GiB". */
static struct dyti_words memory_of(const char *key)
{
    char text[64];

    file_line("/proc/meminfo", key, text, sizeof(text));
    return dyti_words_bytes((uint64_t)strtoull(text, NULL, 10) * 1024u);
}

static void show_memory(struct dyti_json *json)
{
    const struct dyti_memory_ops *m = dyti_backends_host()->memory;
    char huge[64], thp[128], text[256];
    enum dyti_page_kind kind = m->probe(64u << 20);

    file_line("/proc/meminfo", "HugePages_Free", huge, sizeof(huge));
    file_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "", thp,
              sizeof(thp));
    snprintf(text, sizeof(text), "%s in all, %s available",
             memory_of("MemTotal").text, memory_of("MemAvailable").text);
    row(json, "memory", text, NULL);
    snprintf(text, sizeof(text),
             "%s for shared memory (free hugetlb pages: "
             "%s; shmem THP: %s)",
             dyti_page_kind_name(kind), huge, thp);
    row(json, "pages", text,
        kind == DYTI_PAGES_HUGETLB ? NULL
        : kind == DYTI_PAGES_THP
            ? "better still, as root: sysctl vm.nr_hugepages=N (2 MiB "
              "each, as many as a run's memory)"
            : "switches of large models will be slow; as root: sysctl "
              "vm.nr_hugepages=N, or echo advise > "
              "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

static void show_bandwidth(struct dyti_json *json)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    double best = 0.0;
    char text[64];

    if (from == NULL || to == NULL) {
        row(json, "memcpy", "not measured: no memory", NULL);
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
    row(json, "memcpy", text, NULL);
    free(from);
    free(to);
}

static void show_limits(struct dyti_json *json)
{
    struct rlimit files, memory;
    struct statvfs disk;
    char text[160], cache[4096];

    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_AS, &memory);
    snprintf(text, sizeof(text), "%llu open files, address space %s",
             (unsigned long long)files.rlim_cur,
             memory.rlim_cur == RLIM_INFINITY ? "unlimited" : "LIMITED");
    row(json, "limits", text,
        files.rlim_cur < 256 ? "raise it: ulimit -n 1024" : NULL);
    if (statvfs(".", &disk) == 0) {
        snprintf(text, sizeof(text), "%.1f GB free here",
                 (double)disk.f_bavail * (double)disk.f_frsize * 1e-9);
        row(json, "disk", text, NULL);
    }
    if (dyti_env_cache_dir(cache, sizeof(cache)) == DYT_OK) {
        row(json, "cache", cache, NULL);
    } else {
        row(json, "cache", "none",
            "set HOME or DYNATRAIN_CACHE to keep models");
    }
}

/* Whose memory it reads and writes where it lies: rows of a session go from GPU
 * to GPU between such, by the host between others. */
static void show_reach(struct dyti_json *json,
                       const struct dyti_device_report *r, uint32_t index)
{
    uint32_t count = r->count < DYTI_DEVICES_MAX ? r->count : DYTI_DEVICES_MAX;
    const char *first = "";

    if (json != NULL) {
        dyti_json_begin_array(json, "reaches");
    } else if (count > 1) {
        printf("%-14s     reaches: %s", "",
               r->row[index].reaches == 0 ? "no other" : "");
    }
    for (uint32_t i = 0; i < count; i++) {
        if ((r->row[index].reaches >> i & 1u) == 0) {
            continue;
        }
        if (json != NULL) {
            dyti_json_text(json, NULL, r->row[i].uuid);
        } else {
            printf("%s%s", first, r->row[i].uuid);
            first = ", ";
        }
    }
    if (json != NULL) {
        dyti_json_end(json);
    } else if (count > 1) {
        printf("\n");
    }
}

/* One GPU, and how ranks share its memory: tried, as a run would, where the
 * driver is ready. */
static void show_device(struct dyti_json *json,
                        const struct dyti_device_report *r, uint32_t index)
{
    const struct dyti_device_row *d = &r->row[index];
    bool is_ready = r->state == DYTI_DEVICE_READY;
    struct dyti_device_segments segments = {.text = "not tried"};

    if (is_ready && d->arch >= 70) {
        dyti_device_try_segments("cuda", d->uuid, &segments);
    }
    if (json == NULL) {
        printf("%-14s   %s: %s, sm_%u, %.1f GB\n", "", d->uuid, d->name,
               d->arch, (double)d->memory_bytes * 1e-9);
        printf("%-14s     segments: %s\n", "", segments.text);
        show_reach(NULL, r, index);
        return;
    }
    dyti_json_begin_object(json, NULL);
    dyti_json_text(json, "uuid", d->uuid);
    dyti_json_text(json, "name", d->name);
    dyti_json_u64(json, "arch", d->arch);
    dyti_json_u64(json, "memory_bytes", d->memory_bytes);
    dyti_json_bool(json, "maps_memory", d->maps_memory);
    dyti_json_bool(json, "exports_fd", d->exports_fd);
    dyti_json_bool(json, "vmm_segments", segments.has[DYTI_PAGES_VMM]);
    dyti_json_bool(json, "ipc_segments", segments.has[DYTI_PAGES_IPC]);
    dyti_json_text(json, "segments", segments.text);
    show_reach(json, r, index);
    dyti_json_end(json);
}

/* The cuda device: its state, what that means, and each GPU by its UUID. */
static void show_cuda(struct dyti_json *json)
{
    struct dyti_device_report r;

    dyti_device_probe("cuda", &r);
    if (json == NULL) {
        row(json, "cuda", dyti_device_state_name(r.state), r.text);
    } else {
        dyti_json_begin_object(json, "cuda");
        dyti_json_text(json, "value", dyti_device_state_name(r.state));
        dyti_json_text(json, "means", r.text);
        dyti_json_u64(json, "driver", r.driver);
        dyti_json_u64(json, "count", r.count);
        dyti_json_begin_array(json, "devices");
    }
    for (uint32_t i = 0; i < r.count && i < DYTI_DEVICES_MAX; i++) {
        if (r.row[i].uuid[0] == '\0') {
            break; /* the driver failed before this one */
        }
        show_device(json, &r, i);
    }
    if (json != NULL) {
        dyti_json_end(json);
        dyti_json_end(json);
    }
}

/* What carries data between GPUs. */
static void show_nccl(struct dyti_json *json)
{
    struct dyti_group_report r;

    dyti_device_probe_groups("cuda", &r);
    if (json == NULL) {
        row(json, "nccl", r.state, r.text);
        return;
    }
    dyti_json_begin_object(json, "nccl");
    dyti_json_text(json, "value", r.state);
    dyti_json_text(json, "means", r.text);
    dyti_json_u64(json, "version", r.version);
    dyti_json_end(json);
}

static void show_all(struct dyti_json *json)
{
    const struct dyti_backends *b = dyti_backends_host();
    char text[160];

    show_cpu(json);
    show_memory(json);
    show_bandwidth(json);
    row(json, "devices", "host", NULL);
    show_cuda(json);
    show_nccl(json);
    snprintf(text, sizeof(text), "groups %s, mover %s, kernels %s",
             b->group->name, b->mover->name, b->kernels->name);
    row(json, "backends", text, NULL);
    show_limits(json);
}

static enum dyt_status show_json(void)
{
    struct dyti_json json;
    const char *text = NULL;
    size_t bytes = 0;
    enum dyt_status st;

    dyti_json_init(&json, 2);
    dyti_json_begin_object(&json, NULL);
    show_all(&json);
    dyti_json_end(&json);
    st = dyti_json_finish(&json, &text, &bytes);
    if (st == DYT_OK) {
        fwrite(text, 1, bytes, stdout); /* main looks at stdout's state */
    }
    dyti_json_release(&json);
    return st;
}

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "One JSON document", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    bool *json = state->input;

    (void)arg;
    if (key == 'j') {
        *json = true;
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Says what this machine has: processor, memory pages, bandwidth, devices, "
    "limits, and what each absence means.\v"
    "Examples:\n  dynatrain doctor\n  dynatrain doctor --json\n",
    NULL,
    NULL,
    NULL};

int dyti_cmd_doctor(int argc, char **argv)
{
    enum dyt_status st = DYT_OK;
    bool json = false;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &json);
    if (json) {
        st = show_json();
    } else {
        show_all(NULL);
    }
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("doctor", st);
}
