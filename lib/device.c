#include "lib/device.h"

#include "lib/module.h"
#include "plugin/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "cuda"

bool dyti_row_is_on_device(const struct dyt_row *row)
{
    return row->device.type != DYT_DEVICE_HOST;
}

/* ---- names ----------------------------------------------------------------
 */

static bool is_zero(const uint8_t uuid[16])
{
    static const uint8_t zero[16];

    return memcmp(uuid, zero, sizeof(zero)) == 0;
}

/* As the device's own tools write it. */
static void name_device(struct dyti_device *device)
{
    size_t at = (size_t)snprintf(device->name, sizeof(device->name), "GPU-");

    for (size_t i = 0; i < sizeof(device->uuid); i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;

        at += (size_t)snprintf(device->name + at, sizeof(device->name) - at,
                               "%s%02x", dash ? "-" : "", device->uuid[i]);
    }
}

/* NULL: the only one. */
const char *dyti_device_uuid(const struct dyti_device *device)
{
    return is_zero(device->uuid) ? NULL : device->name;
}

/* ---- open, close ----------------------------------------------------------
 */

static size_t find(const struct dyti_devices *devices, const uint8_t uuid[16])
{
    size_t i = 0;

    while (i < devices->count &&
           memcmp(devices->device[i].uuid, uuid, 16) != 0) {
        i++;
    }
    return i;
}

uint32_t dyti_devices_of(const struct dyti_devices *devices,
                         const struct dyt_row *row)
{
    return (uint32_t)find(devices, row->device.uuid);
}

static enum dyt_status list_devices(struct dyti_devices *devices,
                                    const struct dyt_view *rows)
{
    for (uint64_t i = 0; i < rows->row_count; i++) {
        const struct dyt_row *row = dyti_row_at(rows, i);
        struct dyti_device *grown;

        if (!dyti_row_is_on_device(row) ||
            find(devices, row->device.uuid) < devices->count) {
            continue;
        }
        grown = realloc(devices->device, (devices->count + 1) * sizeof(*grown));
        if (grown == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%zu devices", devices->count + 1);
        }
        devices->device = grown;
        grown += devices->count++;
        *grown = (struct dyti_device){.name = "the device"};
        memcpy(grown->uuid, row->device.uuid, sizeof(grown->uuid));
        if (!is_zero(grown->uuid)) {
            name_device(grown);
        }
    }
    return DYT_OK;
}

static enum dyt_status open_one(const struct dyti_devices *devices,
                                struct dyti_device *device)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params),
                                        .device = dyti_device_uuid(device)};
    enum dyt_status st = devices->module->memory->use(dyti_device_uuid(device));

    if (st == DYT_OK) {
        st = devices->module->kernels->open(&params, &device->kernels.self);
    }
    if (st == DYT_OK) {
        device->kernels.ops = devices->module->kernels;
    }
    return st;
}

static enum dyt_status open_all(struct dyti_devices *devices)
{
    enum dyt_status st = dyti_module_open(MODULE, &devices->module);

    if (st == DYT_OK &&
        (devices->module->memory == NULL || devices->module->kernels == NULL)) {
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                       "the module %s has no memory or no kernels", MODULE);
    }
    for (size_t i = 0; i < devices->count && st == DYT_OK; i++) {
        st = open_one(devices, &devices->device[i]);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("opening what rows on a device need");
    }
    return st;
}

enum dyt_status dyti_devices_open(const struct dyt_view *rows,
                                  struct dyti_devices **out)
{
    struct dyti_devices *devices = calloc(1, sizeof(*devices));
    enum dyt_status st;

    if (devices == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the devices of rows");
    }
    pthread_mutex_init(&devices->lock, NULL);
    st = list_devices(devices, rows);
    if (st == DYT_OK && devices->count > 0) {
        st = open_all(devices);
    }
    if (st != DYT_OK || devices->count == 0) {
        dyti_devices_close(devices);
        devices = NULL;
    }
    if (st == DYT_OK) {
        *out = devices;
    }
    return st;
}

void dyti_devices_close(struct dyti_devices *devices)
{
    if (devices == NULL) {
        return;
    }
    for (size_t i = 0; i < devices->count; i++) {
        const struct dyti_kernels *k = &devices->device[i].kernels;

        if (k->ops != NULL) {
            k->ops->close(k->self);
        }
    }
    pthread_mutex_destroy(&devices->lock);
    free(devices->device);
    free(devices);
}

/* ---- pointers -------------------------------------------------------------
 */

static bool is_of_a_device(enum dyti_memory_kind kind)
{
    return kind == DYTI_MEMORY_DEVICE || kind == DYTI_MEMORY_POOL ||
           kind == DYTI_MEMORY_MAPPED || kind == DYTI_MEMORY_MANAGED;
}

/* The piece that byte `at` of a row lies in; false: what is wrong was added. */
static bool look_at_piece(const struct dyti_devices *devices,
                          const struct dyti_device_place *place, uint64_t at,
                          struct dyti_memory_look *look,
                          struct dyti_found *found)
{
    const struct dyti_device *device = &devices->device[place->device];
    const unsigned char *byte = (const unsigned char *)place->data + at;
    enum dyt_status st = devices->module->memory->look(byte, 1, look);
    const char *what = st != DYT_OK ? dyti_error_message() : NULL;

    if (what != NULL) {
        dyti_found_add(found, st, "row %s: %s", place->name, what);
    } else if (!is_of_a_device(look->kind)) {
        dyti_found_add(found, DYT_ERR_INVALID,
                       "row %s: %llu bytes at %p, of which byte %llu is no "
                       "memory of a device (%s): it was freed, or is the "
                       "host's",
                       place->name, (unsigned long long)place->bytes,
                       place->data, (unsigned long long)at,
                       dyti_memory_kind_name(look->kind));
    } else if (dyti_device_uuid(device) != NULL && look->device[0] != '\0' &&
               strcmp(look->device, device->name) != 0) {
        dyti_found_add(found, DYT_ERR_INVALID,
                       "row %s lies on device %s, and says %s", place->name,
                       look->device, device->name);
    } else {
        return true;
    }
    return false;
}

/* An expandable segment is several pieces behind each other, everything else
 * one. */
void dyti_devices_look(const struct dyti_devices *devices,
                       const struct dyti_device_place *place,
                       struct dyti_found *found)
{
    uint64_t at = 0;

    while (at < place->bytes) {
        uintptr_t byte = (uintptr_t)place->data + at, end;
        struct dyti_memory_look look = {0};

        if (!look_at_piece(devices, place, at, &look, found)) {
            return;
        }
        end = (uintptr_t)look.base + look.bytes;
        if (look.bytes == 0 || end - byte >= place->bytes - at) {
            return; /* not known, or all of it */
        }
        if (end <= byte || look.kind != DYTI_MEMORY_MAPPED) {
            dyti_found_add(found, DYT_ERR_INVALID,
                           "row %s: %llu bytes at %p, the allocation there "
                           "ends after %llu",
                           place->name, (unsigned long long)place->bytes,
                           place->data,
                           (unsigned long long)(end - (uintptr_t)place->data));
            return;
        }
        at += end - byte;
    }
}

void dyti_devices_look_at(struct dyti_devices *devices,
                          const struct dyt_view *rows, struct dyti_found *found)
{
    pthread_mutex_lock(&devices->lock);
    for (uint64_t i = 0; i < rows->row_count; i++) {
        const struct dyt_row *row = dyti_row_at(rows, i);
        struct dyti_device_place place = {.name = row->name,
                                          .data = row->data,
                                          .bytes = dyti_row_extent(row),
                                          .device =
                                              dyti_devices_of(devices, row)};
        enum dyt_status st;

        if (!dyti_row_is_on_device(row) || place.bytes == 0) {
            continue;
        }
        st = devices->module->memory->use(
            dyti_device_uuid(&devices->device[place.device]));
        if (st != DYT_OK) {
            dyti_found_add(found, st, "row %s: %s", row->name,
                           dyti_error_message());
        } else {
            dyti_devices_look(devices, &place, found);
        }
    }
    pthread_mutex_unlock(&devices->lock);
}
