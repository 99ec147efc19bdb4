/* Feeds a harness without libFuzzer: every file of a corpus, then cut, changed,
 * doubled and crossed copies of them, drawn from fixed seeds.
 *     PROGRAM RUNS FOLDER */
#include "fuzz.h"

#include "base/rng.h"

#include <dirent.h>
#include <stdio.h>

#define INPUTS_MAX  256
#define INPUT_BYTES 4096

struct input {
    char name[256];
    uint8_t bytes[INPUT_BYTES];
    size_t size;
};

static struct input inputs[INPUTS_MAX];
static size_t input_count;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct input *)a)->name,
                  ((const struct input *)b)->name);
}

/* Order of a folder is not fixed: sort it. */
static int load(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    if (dir == NULL) {
        fprintf(stderr, "no corpus at %s\n", folder);
        return 1;
    }
    while ((entry = readdir(dir)) != NULL && input_count < INPUTS_MAX) {
        struct input *input = &inputs[input_count];
        char path[1024];
        FILE *file;

        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(input->name, sizeof(input->name), "%s", entry->d_name);
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        file = fopen(path, "rb");
        if (file == NULL) {
            continue;
        }
        input->size = fread(input->bytes, 1, INPUT_BYTES, file);
        fclose(file);
        input_count++;
    }
    closedir(dir);
    qsort(inputs, input_count, sizeof(inputs[0]), by_name);
    return input_count == 0;
}

static size_t draw(uint64_t run, uint64_t what, size_t below)
{
    return below == 0 ? 0 : (size_t)(dyti_rng_u64(1, run, what, 0) % below);
}

/* A changed copy of a corpus file. */
static void mutate(uint64_t run, struct input *out)
{
    static const char spice[] = "\"\\{}[],:=.\n\t 0-e\x7f\x80\xff";
    const struct input *from = &inputs[draw(run, 0, input_count)];
    const struct input *other = &inputs[draw(run, 1, input_count)];
    size_t edits = 1 + draw(run, 2, 4);

    *out = *from;
    if (draw(run, 3, 4) == 0) { /* head of one, tail of another */
        size_t head = draw(run, 4, from->size + 1);
        size_t tail = draw(run, 5, other->size + 1);

        tail = tail > INPUT_BYTES - head ? INPUT_BYTES - head : tail;
        memcpy(out->bytes + head, other->bytes + other->size - tail, tail);
        out->size = head + tail;
    }
    for (uint64_t e = 0; e < edits && out->size > 0; e++) {
        size_t at = draw(run, 10 + e, out->size);

        switch (draw(run, 20 + e, 4)) {
        case 0:
            out->bytes[at] = (uint8_t)draw(run, 30 + e, 256);
            break;
        case 1:
            out->bytes[at] =
                (uint8_t)spice[draw(run, 30 + e, sizeof(spice) - 1)];
            break;
        case 2: /* one byte less */
            memmove(out->bytes + at, out->bytes + at + 1, out->size - at - 1);
            out->size--;
            break;
        default:
            out->size = at; /* cut */
        }
    }
}

/* In memory of its exact size, so that a sanitizer sees a byte too far. */
static void feed(const struct input *input)
{
    uint8_t *copy = malloc(input->size == 0 ? 1 : input->size);

    if (copy == NULL) {
        abort();
    }
    memcpy(copy, input->bytes, input->size);
    LLVMFuzzerTestOneInput(copy, input->size);
    free(copy);
}

int main(int argc, char **argv)
{
    static struct input changed;
    uint64_t runs = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;

    if (argc != 3 || load(argv[2]) != 0) {
        fprintf(stderr, "usage: PROGRAM RUNS FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < input_count; i++) {
        feed(&inputs[i]);
    }
    for (uint64_t run = 0; run < runs; run++) {
        mutate(run, &changed);
        feed(&changed);
    }
    printf("%zu inputs, %llu mutations\n", input_count,
           (unsigned long long)runs);
    return 0;
}
