/* What a member gives when it joins: checked, and kept. */
#include "lib/session_internal.h"

#include "lib/handles.h"

#include <netdb.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_NS 60000000000ll

static bool is_job_name(const char *job)
{
    size_t n = job != NULL ? strlen(job) : 0;

    return n >= 1 && n <= 63 &&
           strspn(job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                       "0123456789_.-") == n;
}

static bool is_numeric_address(const char *address)
{
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    bool ok = getaddrinfo(address, NULL, &numeric, &found) == 0;

    if (ok) {
        freeaddrinfo(found);
    }
    return ok;
}

static uint32_t at_least_one(uint32_t size)
{
    return size == 0 ? 1 : size;
}

/* Numbers that stand for something. */
static enum dyt_status check_choices(const struct dyt_session_params *p)
{
    const struct {
        const char *name, *values;
        uint32_t value, last;
    } choice[] = {
        {"role", "enum dyt_role", p->role, DYT_ROLE_RECEIVER},
        {"commit", "enum dyt_commit_mode", p->commit, DYT_COMMIT_IN_PLACE},
        {"memory", "enum dyt_memory_mode", p->memory, DYT_MEMORY_MAPPED},
        {"verify", "enum dyt_verify", p->verify, DYT_VERIFY_OFF},
        {"policy", "enum dyt_policy", p->policy, DYT_POLICY_QUORUM},
        {"host_manager", "as it is needed, always, never", p->host_manager, 2}};

    for (size_t i = 0; i < sizeof(choice) / sizeof(choice[0]); i++) {
        if (choice[i].value > choice[i].last) {
            return DYTI_FAIL(DYT_ERR_CONFIG, "%s %u: give 0 to %u (%s)",
                             choice[i].name, choice[i].value, choice[i].last,
                             choice[i].values);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_params(const struct dyt_session_params *p)
{
    enum dyt_status st;

    if (!is_job_name(p->job)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "job \"%.80s\": give 1 to 63 letters, digits, _ . -",
                         p->job != NULL ? p->job : "");
    }
    st = check_choices(p);
    if (st != DYT_OK) {
        return st;
    }
    if (p->commit == DYT_COMMIT_DOUBLE && p->memory != DYT_MEMORY_MAPPED) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "commit DOUBLE flips between two segments of ours: it "
                         "needs memory MAPPED (dyt_session_map)");
    }
    if (p->pool != NULL && strlen(p->pool) > 63) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "pool \"%.80s\": at most 63 bytes",
                         p->pool);
    }
    if (p->host_address != NULL && !is_numeric_address(p->host_address)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "host_address \"%.80s\" is no numeric address: give "
                         "one of this host that the others reach, such as "
                         "10.0.0.7",
                         p->host_address);
    }
    if (p->rank >= p->size) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "rank %u of %u: ranks count from 0 and are fewer than "
                         "the size",
                         p->rank, p->size);
    }
    for (uint32_t i = 0; p->attribute != NULL && i < p->attribute_count; i++) {
        if (p->attribute[i].name == NULL || p->attribute[i].name[0] == '\0') {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "attribute %u of %u has no name: give the one "
                             "that the rules ask for, such as head_dim",
                             i, p->attribute_count);
        }
    }
    if ((p->expert_count > 0 && p->expert == NULL) ||
        (p->attribute_count > 0 && p->attribute == NULL)) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "experts or attributes are counted, "
                                         "and not given");
    }
    return DYT_OK;
}

static enum dyt_status copy_text(struct dyt_session *s, uint32_t at,
                                 const char **text)
{
    if (*text == NULL) {
        return DYT_OK;
    }
    s->text[at] = strdup(*text);
    *text = s->text[at];
    return s->text[at] != NULL ? DYT_OK : DYTI_FAIL(DYT_ERR_NOMEM, "a session");
}

static enum dyt_status copy_attributes(struct dyt_session *s)
{
    struct dyt_session_params *p = &s->params;

    s->attribute = calloc(p->attribute_count + 1u, sizeof(*s->attribute));
    s->attribute_name =
        calloc(p->attribute_count + 1u, sizeof(*s->attribute_name));
    s->expert = calloc(p->expert_count + 1u, sizeof(*s->expert));
    if (s->attribute == NULL || s->attribute_name == NULL ||
        s->expert == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a session");
    }
    for (uint32_t i = 0; i < p->attribute_count; i++) {
        s->attribute_name[i] = strdup(p->attribute[i].name);
        if (s->attribute_name[i] == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "a session");
        }
        s->attribute[i] =
            (struct dyt_attribute){s->attribute_name[i], p->attribute[i].value};
    }
    if (p->expert_count > 0) {
        memcpy(s->expert, p->expert, p->expert_count * sizeof(*s->expert));
        p->expert = s->expert;
    }
    p->attribute = s->attribute;
    return DYT_OK;
}

enum dyt_status dyti_session_copy_params(struct dyt_session *s,
                                         const struct dyt_session_params *from)
{
    struct dyt_session_params *p = &s->params;
    size_t bytes =
        from->struct_size < sizeof(*p) ? from->struct_size : sizeof(*p);
    enum dyt_status st =
        dyti_struct_check("dyt_session_params", from->struct_size,
                          offsetof(struct dyt_session_params, timeout_ns) +
                              sizeof(p->timeout_ns));

    if (st != DYT_OK) {
        return st;
    }
    memcpy(p, from, bytes);
    p->size = at_least_one(p->size);
    p->tp_size = at_least_one(p->tp_size);
    p->pp_size = at_least_one(p->pp_size);
    p->dp_size = at_least_one(p->dp_size);
    p->ep_size = at_least_one(p->ep_size);
    st = check_params(p);
    if (st == DYT_OK && p->pool == NULL) {
        p->pool = "rollout";
    }
    st = st != DYT_OK ? st : copy_text(s, 0, &p->address);
    st = st != DYT_OK ? st : copy_text(s, 1, &p->job);
    st = st != DYT_OK ? st : copy_text(s, 2, &p->pool);
    st = st != DYT_OK ? st : copy_text(s, 3, &p->key);
    st = st != DYT_OK ? st : copy_text(s, 4, &p->manager_key);
    st = st != DYT_OK ? st : copy_text(s, 5, &p->host);
    st = st != DYT_OK ? st : copy_text(s, 6, &p->host_address);
    st = st != DYT_OK ? st : copy_attributes(s);
    s->timeout_ns = p->timeout_ns > DYTI_SESSION_LONGEST_NS
                        ? DYTI_SESSION_LONGEST_NS
                    : p->timeout_ns > 0 ? p->timeout_ns
                                        : TIMEOUT_NS;
    return st;
}

void dyti_session_free_params(struct dyt_session *s)
{
    for (uint32_t i = 0;
         s->attribute_name != NULL && i < s->params.attribute_count; i++) {
        free(s->attribute_name[i]);
    }
    free(s->attribute_name);
    free(s->attribute);
    free(s->expert);
    for (size_t i = 0; i < sizeof(s->text) / sizeof(s->text[0]); i++) {
        free(s->text[i]);
    }
}
