/* Takes the source shards that touch a destination shard in order of
 * preference; each gives what is still missing. */
#include "plan/cover.h"

#include "base/array.h"
#include "plan/boxes.h"

#include <stdlib.h>

#define KEYS 6u

struct dyti_candidate {
    uint32_t key[KEYS]; /* preference, most important first */
    uint32_t source, rank, shard;
};

enum dyt_status dyti_cover_init(struct dyti_cover *cover,
                                const struct dyti_plan_inputs *inputs)
{
    *cover = (struct dyti_cover){.inputs = inputs};
    for (uint32_t w = 0; w < inputs->want_count; w++) {
        for (uint32_t s = 0; s < inputs->want[w].source_count; s++) {
            const struct dyti_plan_source *source = &inputs->want[w].source[s];
            uint32_t i = 0;

            while (i < cover->own_count &&
                   (cover->own[i].layout != source->layout ||
                    cover->own[i].kind != source->kind)) {
                i++;
            }
            if (i == cover->own_count) {
                enum dyt_status st = dyti_index_init(
                    &cover->own[i], source->layout, source->kind);

                if (st != DYT_OK) {
                    dyti_cover_fini(cover);
                    return st;
                }
                cover->own_count++;
            }
            cover->index[w][s] = &cover->own[i];
        }
    }
    return DYT_OK;
}

void dyti_cover_fini(struct dyti_cover *cover)
{
    for (uint32_t i = 0; i < cover->own_count; i++) {
        dyti_index_fini(&cover->own[i]);
    }
    free(cover->candidate);
    free(cover->rest);
    free(cover->found);
    *cover = (struct dyti_cover){0};
}

/* ---- preference --------------------------------------------------------- */

static int by_preference(const void *a, const void *b)
{
    const struct dyti_candidate *x = a, *y = b;

    for (uint32_t k = 0; k < KEYS; k++) {
        if (x->key[k] != y->key[k]) {
            return x->key[k] < y->key[k] ? -1 : 1;
        }
    }
    return (x->shard > y->shard) - (x->shard < y->shard);
}

/* Same rank, then the order of sources, then replicas in turn. */
static void set_keys(struct dyti_candidate *c, const struct dyti_part *part,
                     uint32_t dst_rank, uint32_t tensor)
{
    uint32_t turn = (dst_rank & 0xffffu) + (tensor & 0xffffu);

    c->key[0] = c->rank != dst_rank;
    c->key[1] = c->source;
    c->key[2] = (part->dp_rank + turn) % part->dp_size;
    c->key[3] = (part->tp_rank + turn) % part->tp_size;
    c->key[4] = (part->pp_rank + turn) % part->pp_size;
    c->key[5] = c->rank;
}

static enum dyt_status find_candidates(struct dyti_cover *cover, uint32_t want,
                                       uint32_t rank,
                                       const struct dyti_shard *dst)
{
    const struct dyti_plan_inputs *inputs = cover->inputs;
    uint32_t axis = inputs->dst->model->tensor[dst->tensor].cut_axis;

    cover->candidate_count = 0;
    for (uint32_t s = 0; s < inputs->want[want].source_count; s++) {
        const struct dyti_index *index = cover->index[want][s];
        size_t first, end;

        dyti_index_range(index, dst->tensor, dst->box.lo[axis],
                         dst->box.hi[axis], &first, &end);
        for (size_t i = first; i < end; i++) {
            const struct dyti_index_entry *e = &index->entry[i];
            struct dyt_box both;
            struct dyti_candidate *c;
            enum dyt_status st;

            if (!dyti_boxes_overlap(&dst->box, &dyti_index_shard(index, e)->box,
                                    &both)) {
                continue;
            }
            st = DYTI_GROW(cover->candidate, cover->candidate_cap,
                           cover->candidate_count + 1);
            if (st != DYT_OK) {
                return st;
            }
            c = &cover->candidate[cover->candidate_count++];
            *c = (struct dyti_candidate){
                .source = s, .rank = e->rank, .shard = e->shard};
            set_keys(c, &index->layout->view[e->rank].part, rank, dst->tensor);
        }
    }
    if (cover->candidate_count > 1) {
        qsort(cover->candidate, cover->candidate_count,
              sizeof(*cover->candidate), by_preference);
    }
    return DYT_OK;
}

/* ---- taking ------------------------------------------------------------- */

static enum dyt_status add_rest(struct dyti_cover *cover,
                                const struct dyt_box *box)
{
    enum dyt_status st =
        DYTI_GROW(cover->rest, cover->rest_cap, cover->rest_count + 1);

    if (st == DYT_OK) {
        cover->rest[cover->rest_count++] = *box;
    }
    return st;
}

/* `box` comes from the candidate; join it with what came from the same shard
 * just before, as long as that makes a box. */
static enum dyt_status add_found(struct dyti_cover *cover,
                                 const struct dyti_transfer *form,
                                 const struct dyt_box *box, size_t first)
{
    struct dyt_box piece = *box;
    enum dyt_status st;

    for (size_t i = first; i < cover->found_count; i++) {
        struct dyt_box joined = cover->found[i].box;

        if (dyti_boxes_join(&joined, &piece)) {
            piece = joined;
            cover->found[i] = cover->found[--cover->found_count];
            i = first - 1; /* it may touch others now: look again */
        }
    }
    st = DYTI_GROW(cover->found, cover->found_cap, cover->found_count + 1);
    if (st == DYT_OK) {
        cover->found[cover->found_count] = *form;
        cover->found[cover->found_count++].box = piece;
    }
    return st;
}

/* Give the candidate all that is missing and that it has. */
static enum dyt_status take(struct dyti_cover *cover,
                            const struct dyti_transfer *form,
                            const struct dyt_box *src)
{
    size_t first = cover->found_count, count = cover->rest_count, kept = 0;

    /* Boxes behind `count` are new pieces that the candidate does not have. */
    for (size_t i = 0; i < count; i++) {
        struct dyt_box both, piece[2 * DYT_MAX_DIMS];
        uint32_t pieces;
        enum dyt_status st;

        if (!dyti_boxes_overlap(&cover->rest[i], src, &both)) {
            cover->rest[kept++] = cover->rest[i];
            continue;
        }
        pieces = dyti_boxes_without(&cover->rest[i], &both, piece);
        for (uint32_t p = 0; p < pieces; p++) {
            st = add_rest(cover, &piece[p]);
            if (st != DYT_OK) {
                return st;
            }
        }
        st = add_found(cover, form, &both, first);
        if (st != DYT_OK) {
            return st;
        }
    }
    for (size_t i = count; i < cover->rest_count; i++) {
        cover->rest[kept++] = cover->rest[i];
    }
    cover->rest_count = kept;
    return DYT_OK;
}

static enum dyt_status no_source(const struct dyti_cover *cover,
                                 const struct dyti_shard *dst, uint32_t rank)
{
    const struct dyti_layout *layout = cover->inputs->dst;
    uint64_t want = dyti_boxes_elements(&dst->box), missing = 0;

    for (size_t i = 0; i < cover->rest_count; i++) {
        missing += dyti_boxes_elements(&cover->rest[i]);
    }
    return DYTI_FAIL(DYT_ERR_LAYOUT,
                     "%s of %s on rank %u in phase %s: %llu of %llu elements "
                     "have a source",
                     dyti_kind_name((enum dyti_kind)dst->kind),
                     layout->model->tensor[dst->tensor].name, rank,
                     layout->desc.phase, (unsigned long long)(want - missing),
                     (unsigned long long)want);
}

enum dyt_status dyti_cover_shard(struct dyti_cover *cover, uint32_t want,
                                 uint32_t rank, uint32_t shard)
{
    const struct dyti_plan_inputs *inputs = cover->inputs;
    const struct dyti_shard *dst = &inputs->dst->view[rank].shard[shard];
    struct dyti_transfer form = {.tensor = dst->tensor,
                                 .dst_rank = rank,
                                 .dst_shard = shard,
                                 .want = (uint8_t)want,
                                 .dst_slot = (uint8_t)inputs->dst_slot,
                                 .dst_kind = dst->kind,
                                 .dst_dtype = dst->dtype};
    enum dyt_status st = find_candidates(cover, want, rank, dst);

    cover->found_count = 0;
    cover->rest_count = 0;
    st = st != DYT_OK ? st : add_rest(cover, &dst->box);
    for (size_t i = 0; i < cover->candidate_count && cover->rest_count > 0;
         i++) {
        const struct dyti_candidate *c = &cover->candidate[i];
        const struct dyti_plan_source *source =
            &inputs->want[want].source[c->source];
        const struct dyti_shard *src;

        if (st != DYT_OK) {
            break;
        }
        src = &source->layout->view[c->rank].shard[c->shard];
        form.src_rank = c->rank;
        form.src_shard = c->shard;
        form.source = (uint8_t)c->source;
        form.src_slot = (uint8_t)source->slot;
        form.src_kind = src->kind;
        form.src_dtype = src->dtype;
        st = take(cover, &form, &src->box);
    }
    if (st == DYT_OK && cover->rest_count > 0) {
        st = no_source(cover, dst, rank);
    }
    return st;
}
