/* Who may come in over tcp: CURVE, and ZeroMQ's question (RFC 27). */
#include "control/hub_internal.h"

#include "base/array.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZAP_ENDPOINT "inproc://zeromq.zap.01"

static enum dyt_status allow_file(struct dyti_hub_door *door, const char *path)
{
    char key[DYTI_KEY_CHARS + 1];
    enum dyt_status st = dyti_key_read(path, false, key);

    if (st == DYT_OK) {
        st = DYTI_GROW(door->authorized, door->authorized_cap,
                       door->authorized_count + 1);
    }
    if (st == DYT_OK) {
        zmq_z85_decode(door->authorized[door->authorized_count++], key);
    }
    return st;
}

static enum dyt_status allow_folder(struct dyti_hub_door *door,
                                    const char *folder)
{
    DIR *dir = opendir(folder);
    enum dyt_status st = DYT_OK;
    struct dirent *entry;

    if (dir == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "the folder %s of authorized keys: %s",
                         folder, strerror(errno));
    }
    while (st == DYT_OK && (entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        char path[4096];

        if (dot != NULL && strcmp(dot, ".public") == 0) {
            int n =
                snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);

            st = n > 0 && (size_t)n < sizeof(path)
                     ? allow_file(door, path)
                     : DYTI_FAIL(DYT_ERR_CONFIG,
                                 "the folder %s of authorized keys: its path "
                                 "is too long",
                                 folder);
        }
    }
    closedir(dir);
    if (st == DYT_OK && door->authorized_count == 0) {
        st = DYTI_FAIL(DYT_ERR_CONFIG,
                       "no *.public key in %s: nobody could come in", folder);
    }
    return st;
}

enum dyt_status dyti_hub_door_open(struct dyti_hub_door *door,
                                   const struct dyti_socket *socket,
                                   const struct dyti_hub_params *params)
{
    char secret[DYTI_KEY_CHARS + 1], folder[4096];
    int on = 1;
    enum dyt_status st;

    if (params->key == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s needs the manager's secret key: make one with "
                         "`dynatrain keys FOLDER`, give FOLDER/manager.secret",
                         params->address.endpoint);
    }
    st = dyti_key_read(params->key, true, secret);
    if (st != DYT_OK) {
        return st;
    }
    if (strlen(params->key) >= sizeof(folder)) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: the path is too long",
                         params->key);
    }
    memcpy(folder, params->key, strlen(params->key) + 1);
    if (strrchr(folder, '/') != NULL) {
        *strrchr(folder, '/') = '\0';
    } else {
        memcpy(folder, ".", 2);
    }
    st = allow_folder(door,
                      params->authorized != NULL ? params->authorized : folder);
    if (st != DYT_OK) {
        return st;
    }
    door->zap = zmq_socket(socket->context, ZMQ_REP);
    if (door->zap == NULL || zmq_bind(door->zap, ZAP_ENDPOINT) != 0 ||
        zmq_setsockopt(socket->socket, ZMQ_CURVE_SERVER, &on, sizeof(on)) !=
            0 ||
        zmq_setsockopt(socket->socket, ZMQ_CURVE_SECRETKEY, secret,
                       sizeof(secret)) != 0 ||
        zmq_setsockopt(socket->socket, ZMQ_ZAP_DOMAIN, "dynatrain", 9) != 0) {
        st = dyti_zmq_fail("CURVE", params->address.endpoint);
    }
    explicit_bzero(secret, sizeof(secret));
    return st;
}

static bool is_authorized(const struct dyti_hub_door *door, const void *key,
                          size_t n)
{
    for (size_t i = 0; n == 32 && i < door->authorized_count; i++) {
        if (memcmp(door->authorized[i], key, 32) == 0) {
            return true;
        }
    }
    return false;
}

/* One question of ZAP (RFC 27): version, id, domain, address, identity,
 * mechanism, key. */
bool dyti_hub_door_answer(struct dyti_hub_door *door)
{
    char id[256];
    size_t id_bytes = 0;
    bool is_curve = false, ok = false;
    int more = 1;

    for (int part = 0; more != 0; part++) {
        zmq_msg_t frame;

        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, door->zap, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&frame);
            return false;
        }
        if (part == 1 && zmq_msg_size(&frame) <= sizeof(id)) {
            id_bytes = zmq_msg_size(&frame);
            memcpy(id, zmq_msg_data(&frame), id_bytes);
        } else if (part == 5) {
            is_curve = zmq_msg_size(&frame) == 5 &&
                       memcmp(zmq_msg_data(&frame), "CURVE", 5) == 0;
        } else if (part == 6) {
            ok = is_curve && is_authorized(door, zmq_msg_data(&frame),
                                           zmq_msg_size(&frame));
        }
        more = zmq_msg_more(&frame);
        zmq_msg_close(&frame);
    }
    zmq_send(door->zap, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(door->zap, id, id_bytes, ZMQ_SNDMORE);
    zmq_send(door->zap, ok ? "200" : "400", 3, ZMQ_SNDMORE);
    zmq_send(door->zap, ok ? "OK" : "not authorized", ok ? 2 : 14, ZMQ_SNDMORE);
    zmq_send(door->zap, "", 0, ZMQ_SNDMORE);
    zmq_send(door->zap, "", 0, 0);
    return !ok;
}

void dyti_hub_door_close(struct dyti_hub_door *door)
{
    int none = 0;

    if (door->zap != NULL) {
        zmq_setsockopt(door->zap, ZMQ_LINGER, &none, sizeof(none));
        zmq_close(door->zap);
    }
    free(door->authorized);
    *door = (struct dyti_hub_door){0};
}
