#include "plugin/cut.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 64u

bool dyti_attribute_find(const struct dyti_place *place, const char *name,
                         int64_t *out_value)
{
    for (uint32_t i = 0; i < place->attribute_count; i++) {
        if (place->attribute[i].name != NULL &&
            strcmp(place->attribute[i].name, name) == 0) {
            *out_value = place->attribute[i].value;
            return true;
        }
    }
    return false;
}

static bool refuse(struct dyti_cut_words *why, const char *fmt, ...)
    DYTI_PRINTF(2, 3);
static bool refuse(struct dyti_cut_words *why, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(why->text, sizeof(why->text), fmt, args);
    va_end(args);
    return false;
}

/* ---- segments ------------------------------------------------------------ */

/* The next word of "q_heads,kv_heads,2" as a weight. */
static bool next_weight(const char **list, const struct dyti_place *place,
                        int64_t *out_weight, struct dyti_cut_words *why)
{
    size_t bytes = strcspn(*list, ",");
    char word[WORD_BYTES];

    if (bytes == 0 || bytes >= sizeof(word)) {
        return refuse(why, "a segment of \"%.60s\" has no weight", *list);
    }
    memcpy(word, *list, bytes);
    word[bytes] = '\0';
    *list += bytes + ((*list)[bytes] == ',');
    if (isdigit((unsigned char)word[0])) {
        *out_weight = strtoll(word, NULL, 10);
    } else if (!dyti_attribute_find(place, word, out_weight)) {
        return refuse(why, "the attribute \"%s\" is missing", word);
    }
    return *out_weight >= 1 && *out_weight <= INT32_MAX
               ? true
               : refuse(why, "the weight %s is %" PRId64, word, *out_weight);
}

/* The run of `size` elements that is the part's own. */
static bool segment_of(const struct dyt_rule_part *part,
                       const struct dyti_place *place, int64_t size,
                       struct dyti_cut_range *out, struct dyti_cut_words *why)
{
    const char *list = part->segments;
    int64_t sum = 0, lo = 0, mine = 0;
    uint32_t count = 0;

    *out = (struct dyti_cut_range){0, size, size};
    if (list == NULL) {
        return true;
    }
    for (; *list != '\0'; count++) {
        int64_t weight = 0;

        if (!next_weight(&list, place, &weight, why)) {
            return false;
        }
        lo += count < part->segment ? weight : 0;
        mine = count == part->segment ? weight : mine;
        if (__builtin_add_overflow(sum, weight, &sum)) {
            return refuse(why, "the segments are too large");
        }
    }
    if (mine == 0 || size % sum != 0) {
        return refuse(
            why, "segment %u of \"%.40s\" does not cut %" PRId64 " elements",
            part->segment, part->segments, size);
    }
    out->lo = lo * (size / sum);
    out->extent = mine * (size / sum);
    out->hi = out->lo + out->extent;
    return true;
}

/* ---- cuts ---------------------------------------------------------------- */

static bool unit_of(const struct dyt_rule_part *part,
                    const struct dyti_place *place, int64_t *out_unit,
                    struct dyti_cut_words *why)
{
    *out_unit = part->unit;
    if (part->unit == 0 && part->unit_attribute == NULL) {
        return refuse(why, "the rule gives neither unit nor unit_attribute");
    }
    if (part->unit == 0 &&
        !dyti_attribute_find(place, part->unit_attribute, out_unit)) {
        return refuse(why,
                      "the attribute \"%.60s\" is missing: give it to "
                      "dyt_session_join()",
                      part->unit_attribute);
    }
    return *out_unit >= 1 && *out_unit <= INT32_MAX
               ? true
               : refuse(why, "a unit of %" PRId64 " elements", *out_unit);
}

static bool even(int64_t rank, int64_t size, const char *what,
                 struct dyti_cut_range *r, struct dyti_cut_words *why)
{
    if (r->extent % size != 0) {
        return refuse(why, "%s %" PRId64 " does not divide %" PRId64, what,
                      size, r->extent);
    }
    r->extent /= size;
    r->lo += rank * r->extent;
    r->hi = r->lo + r->extent;
    return true;
}

static bool heads(const struct dyti_place *place, int64_t unit,
                  struct dyti_cut_range *r, struct dyti_cut_words *why)
{
    int64_t tp = place->tp_size, count = r->extent / unit;

    if (r->extent % unit != 0) {
        return refuse(why, "heads of %" PRId64 " do not divide %" PRId64, unit,
                      r->extent);
    }
    if (count >= tp ? count % tp != 0 : count == 0 || tp % count != 0) {
        return refuse(why,
                      "%" PRId64 " heads and tp %" PRId64
                      ": one must divide the other",
                      count, tp);
    }
    r->extent = (count >= tp ? count / tp : 1) * unit;
    r->lo += (count >= tp ? place->tp_rank : place->tp_rank / (tp / count)) *
             r->extent;
    r->hi = r->lo + r->extent;
    return true;
}

/* Rows behind the vocabulary are padding. */
static bool vocab(const struct dyti_place *place, int64_t unit,
                  struct dyti_cut_range *r, struct dyti_cut_words *why)
{
    int64_t end = r->hi, padded;

    if (__builtin_add_overflow(r->extent, unit - 1, &padded)) {
        return refuse(why, "a vocabulary of %" PRId64 " rows", r->extent);
    }
    padded -= padded % unit;
    if (padded % place->tp_size != 0) {
        return refuse(why,
                      "%" PRId64 " rows, padded to %" PRId64
                      ", are not divided by tp %u",
                      r->extent, padded, place->tp_size);
    }
    r->extent = padded / place->tp_size;
    r->lo += place->tp_rank * r->extent;
    r->lo = r->lo < end ? r->lo : end;
    r->hi = r->lo + r->extent < end ? r->lo + r->extent : end;
    return true;
}

/* TP inside an expert: of the member, none where experts are spread, or what
 * its attributes say. */
static bool expert_tp(const struct dyti_place *place, struct dyti_cut_range *r,
                      struct dyti_cut_words *why)
{
    int64_t size = place->ep_size > 1 ? 1 : place->tp_size;
    int64_t rank = place->ep_size > 1 ? 0 : place->tp_rank;

    if (dyti_attribute_find(place, "expert_tp_size", &size)) {
        rank = -1;
        (void)dyti_attribute_find(place, "expert_tp_rank", &rank);
    }
    if (size < 1 || size > INT32_MAX || rank < 0 || rank >= size) {
        return refuse(why,
                      "expert_tp_rank %" PRId64 " of expert_tp_size %" PRId64,
                      rank, size);
    }
    return even(rank, size, "expert tp", r, why);
}

bool dyti_cut_range(const struct dyt_rule_part *part,
                    const struct dyti_place *place, int64_t size,
                    struct dyti_cut_range *out_range,
                    struct dyti_cut_words *out_why)
{
    int64_t unit;

    if (!segment_of(part, place, size, out_range, out_why)) {
        return false;
    }
    switch (part->cut) {
    case DYT_RULE_WHOLE:
        return true;
    case DYT_RULE_EVEN:
        return even(place->tp_rank, place->tp_size, "tp", out_range, out_why);
    case DYT_RULE_HEADS:
        return unit_of(part, place, &unit, out_why) &&
               heads(place, unit, out_range, out_why);
    case DYT_RULE_VOCAB:
        return unit_of(part, place, &unit, out_why) &&
               vocab(place, unit, out_range, out_why);
    case DYT_RULE_EXPERTS:
        return expert_tp(place, out_range, out_why);
    default:
        return refuse(out_why, "cut %u is not known", part->cut);
    }
}

/* ---- experts ------------------------------------------------------------- */

uint32_t dyti_expert_place_count(const struct dyti_place *place,
                                 int64_t experts)
{
    int64_t ep = place->ep_size;

    if (place->expert != NULL) {
        return place->expert_count;
    }
    return (uint32_t)(experts / ep + (place->ep_rank < experts % ep));
}

int64_t dyti_expert_of_place(const struct dyti_place *place, int64_t experts,
                             uint32_t i)
{
    int64_t ep = place->ep_size, rank = place->ep_rank, more = experts % ep;

    if (place->expert != NULL) {
        return place->expert[i];
    }
    return rank * (experts / ep) + (rank < more ? rank : more) + i;
}
