/* Attention of one head of one sequence in tiles of query rows x keys, with a
 * running softmax, so that no S x S matrix is ever made. */

#define TILE_Q 48
#define TILE_K 64

/* Rows in whole vectors: where they lie if their width allows it, otherwise in
 * scratch, padded. */
struct panel {
    float *p;
    int64_t ld;
};

/* What a tile works in; carved from scratch. */
struct tile {
    float *s, *dp;     /* [TILE_Q, TILE_K] scores, and their gradients */
    float *kt, *vt;    /* [dim, TILE_K] */
    struct panel k, v; /* [n, wide] */
    float *spare_k, *spare_v, *spare_dk, *spare_dv; /* [TILE_K, wide] */
    float *spare_q, *spare_dout, *spare_y;          /* [TILE_Q, wide] */
    float *delta;                                   /* [rows] */
    int64_t dim, wide;
};

static int64_t simd_attend_scratch(int64_t dim, int64_t rows, int64_t seen)
{
    int64_t wide = padded(dim);
    int64_t tile = 2 * TILE_Q * TILE_K + 2 * dim * TILE_K +
                   wide * (4 * TILE_K + 3 * TILE_Q) + rows;

    return tile > seen ? tile + VL : seen + VL; /* or one row of scores */
}

INLINE float *carve(float **at, int64_t count)
{
    float *p = *at;

    *at += count;
    return p;
}

INLINE struct tile tile_in(float *scratch, int64_t dim)
{
    int64_t wide = padded(dim);

    return (struct tile){.s = carve(&scratch, TILE_Q * TILE_K),
                         .dp = carve(&scratch, TILE_Q * TILE_K),
                         .kt = carve(&scratch, dim * TILE_K),
                         .vt = carve(&scratch, dim * TILE_K),
                         .spare_k = carve(&scratch, TILE_K * wide),
                         .spare_v = carve(&scratch, TILE_K * wide),
                         .spare_dk = carve(&scratch, TILE_K * wide),
                         .spare_dv = carve(&scratch, TILE_K * wide),
                         .spare_q = carve(&scratch, TILE_Q * wide),
                         .spare_dout = carve(&scratch, TILE_Q * wide),
                         .spare_y = carve(&scratch, TILE_Q * wide),
                         .delta = scratch,
                         .dim = dim,
                         .wide = wide};
}

/* `rows` rows to read; they are not written. */
INLINE struct panel panel_in(const struct tile *w, const float *src, int64_t ld,
                             int64_t rows, float *spare)
{
    if (w->dim == w->wide) {
        return (struct panel){(float *)(uintptr_t)src, ld};
    }
    tile_load(src, DYTI_F32, 0, ld, rows, w->dim, spare, w->wide);
    return (struct panel){spare, w->wide};
}

/* Rows to write, or to add to where they lie; panel_end brings them home. */
INLINE struct panel panel_out(const struct tile *w, float *dst, int64_t ld,
                              float *spare)
{
    return w->dim == w->wide ? (struct panel){dst, ld}
                             : (struct panel){spare, w->wide};
}

INLINE void panel_end(const struct tile *w, struct panel from, int64_t rows,
                      float *dst, int64_t ld, bool add)
{
    if (from.p != dst) {
        tile_store(from.p, from.ld, rows, w->dim, dst, ld, add);
    }
}

INLINE int64_t at_most(int64_t x, int64_t bound)
{
    return x < bound ? x : bound;
}

/* How many of the tile's n keys, from position p0 on, a row sees. */
INLINE int64_t seen_of(int64_t row, int64_t p0, int64_t n)
{
    int64_t seen = row + 1 - p0;

    return seen < 0 ? 0 : at_most(seen, n);
}

/* How many keys from position p0 on make a tile: of one run, unless a block
 * table scatters them anyway. */
INLINE int64_t tile_keys(const struct simd_keys *keys, int64_t p0, int64_t end)
{
    if (keys->block == NULL) {
        end = p0 + run_from(keys, p0, end).count;
    }
    return at_most(TILE_K, end - p0);
}

/* Keys and values [p0, p0 + n), which tile_keys chose. */
static void load_keys(const struct simd_keys *keys, int64_t p0, int64_t n,
                      struct tile *w)
{
    if (keys->block == NULL) {
        int64_t first = run_from(keys, p0, p0 + n).first;

        w->k = panel_in(w, (const float *)keys->k + first, keys->stride, n,
                        w->spare_k);
        w->v = panel_in(w, (const float *)keys->v + first, keys->stride, n,
                        w->spare_v);
    } else {
        w->k = (struct panel){w->spare_k, w->wide};
        w->v = (struct panel){w->spare_v, w->wide};
        for (int64_t p = p0; p < p0 + n;) {
            struct run run = run_from(keys, p, p0 + n);
            int64_t to = (p - p0) * w->wide;

            tile_load(keys->k, keys->dtype, run.first, keys->stride, run.count,
                      w->dim, w->spare_k + to, w->wide);
            tile_load(keys->v, keys->dtype, run.first, keys->stride, run.count,
                      w->dim, w->spare_v + to, w->wide);
            p += run.count;
        }
    }
    tile_turn(w->k.p, w->k.ld, n, w->dim, w->kt, TILE_K);
}

/* ---- forward ---- */

/* One row of scores becomes e^(scale s - top), zeros where it does not see;
 * what the row had before is scaled to the new top. */
INLINE void soften(float *s, int64_t seen, int64_t columns, float scale,
                   float *top, float *sum, float *y, int64_t wide)
{
    vf m = v_set(-INFINITY), total = v_zero();
    float old = *top, fade;

    for (int64_t i = padded(seen); i < columns; i += VL) {
        v_store(s + i, v_zero());
    }
    if (seen == 0) {
        return;
    }
    VECTORS(seen, {
        vf x = v_part(s + i, n) * v_set(scale);

        m = v_max(v_edge(x, -INFINITY, n), m);
    });
    *top = v_top(v_max(m, v_set(old)));
    VECTORS(seen, {
        vf x = v_fma(v_part(s + i, n), v_set(scale), v_set(-*top));
        vf e = v_exp(v_edge(x, -INFINITY, n));

        v_store(s + i, e);
        total = total + e;
    });
    if (*top == old || old == -INFINITY) {
        *sum += v_sum(total);
        return;
    }
    fade = v_top(v_exp(v_set(old - *top)));
    *sum = *sum * fade + v_sum(total);
    for (int64_t d = 0; d < wide; d += VL) {
        v_store(y + d, v_load(y + d) * v_set(fade));
    }
}

/* A block of query rows and its running softmax. */
struct soft {
    int64_t r0, m;
    float top[TILE_Q], sum[TILE_Q];
    struct panel y;
};

/* The keys [p0, p0 + n). */
static void attend_tile(const struct simd_attend *t, struct tile *w,
                        struct soft *b, int64_t p0, int64_t n)
{
    struct mini scores = {.m = b->m,
                          .k = w->dim,
                          .a = t->q + b->r0 * t->ldq,
                          .a_row = t->ldq,
                          .a_col = 1,
                          .b = w->kt,
                          .ldb = TILE_K,
                          .c = w->s,
                          .ldc = TILE_K};
    struct mini mix = {.m = b->m,
                       .k = n,
                       .a = w->s,
                       .a_row = TILE_K,
                       .a_col = 1,
                       .c = b->y.p,
                       .ldc = b->y.ld,
                       .add = p0 > 0};

    load_keys(&t->keys, p0, n, w);
    mix.b = w->v.p;
    mix.ldb = w->v.ld;
    mini_run(&scores, padded(n));
    for (int64_t i = 0; i < b->m; i++) {
        soften(w->s + i * TILE_K, seen_of(t->before + b->r0 + i, p0, n),
               padded(n), t->scale, &b->top[i], &b->sum[i],
               b->y.p + i * b->y.ld, w->wide);
    }
    mini_run(&mix, w->wide);
}

/* Query rows [r0, r0 + m). */
static void attend_block(const struct simd_attend *t, struct tile *w,
                         int64_t r0, int64_t m)
{
    int64_t end = t->before + r0 + m;
    float *out = t->out + r0 * t->ldo;
    struct soft b = {.r0 = r0, .m = m};

    b.y = panel_out(w, out, t->ldo, w->spare_y);
    for (int64_t i = 0; i < m; i++) {
        b.top[i] = -INFINITY;
    }
    for (int64_t p0 = 0, n = 0; p0 < end; p0 += n) {
        n = tile_keys(&t->keys, p0, end);
        attend_tile(t, w, &b, p0, n);
    }
    for (int64_t i = 0; i < m; i++) {
        simd_scale(b.y.p + i * b.y.ld, w->wide, 1.0f / b.sum[i]);
        if (t->lse != NULL) {
            t->lse[(r0 + i) * t->ldl] = b.top[i] + f_log(b.sum[i]);
        }
    }
    panel_end(w, b.y, m, out, t->ldo, false);
}

#define FEW_ROWS 4

static void simd_attend(const struct simd_attend *t, float *scratch)
{
    struct tile w = tile_in(scratch, t->keys.dim);

    if (t->rows < FEW_ROWS && t->keys.dtype == DYTI_F32) {
        attend_rows(t, scratch, DYTI_F32);
    } else if (t->rows < FEW_ROWS) {
        attend_rows(t, scratch, DYTI_BF16);
    } else {
        for (int64_t r = 0; r < t->rows; r += TILE_Q) {
            attend_block(t, &w, r, at_most(TILE_Q, t->rows - r));
        }
    }
}

/* ---- backward ---- */

/* Scores and dP of one row become P and dS. */
INLINE void harden(float *s, float *dp, int64_t seen, int64_t columns,
                   float scale, float lse, float delta)
{
    VECTORS(seen, {
        vf x = v_fma(v_part(s + i, n), v_set(scale), v_set(-lse));
        vf p = v_exp(v_edge(x, -INFINITY, n));

        v_store(s + i, p);
        v_store(dp + i, v_set(scale) * p * (v_part(dp + i, n) - v_set(delta)));
    });
    for (int64_t i = padded(seen); i < columns; i += VL) {
        v_store(s + i, v_zero());
        v_store(dp + i, v_zero());
    }
}

/* Query rows [r0, r0 + m) against the keys [p0, p0 + n) in w; dk and dv are
 * written for the first rows, added to after. */
static void back_block(const struct simd_attend_back *t, struct tile *w,
                       int64_t p0, int64_t n, int64_t r0, int64_t m,
                       struct panel dk, struct panel dv, bool add)
{
    struct panel q = panel_in(w, t->q + r0 * t->ldq, t->ldq, m, w->spare_q);
    struct panel dout =
        panel_in(w, t->dout + r0 * t->ldo, t->ldo, m, w->spare_dout);
    float *to = t->dq + r0 * t->ldq;
    struct panel dq = panel_out(w, to, t->ldq, w->spare_y);
    bool home = dq.p == to;
    struct mini s = {m,     w->dim, q.p,  q.ld,   1,
                     w->kt, TILE_K, w->s, TILE_K, false};
    struct mini dp = {m,     w->dim, dout.p, dout.ld, 1,
                      w->vt, TILE_K, w->dp,  TILE_K,  false};
    struct mini to_v = {n,      m,       w->s, 1,     TILE_K,
                        dout.p, dout.ld, dv.p, dv.ld, add};
    struct mini to_k = {n, m, w->dp, 1, TILE_K, q.p, q.ld, dk.p, dk.ld, add};
    struct mini to_q = {m,      n,       w->dp, TILE_K, 1,
                        w->k.p, w->k.ld, dq.p,  dq.ld,  home && p0 > 0};

    mini_run(&s, padded(n));
    mini_run(&dp, padded(n));
    for (int64_t i = 0; i < m; i++) {
        harden(w->s + i * TILE_K, w->dp + i * TILE_K,
               seen_of(t->keys.prefix + r0 + i, p0, n), padded(n), t->scale,
               t->lse[(r0 + i) * t->ldl], w->delta[r0 + i]);
    }
    mini_run(&to_v, w->wide);
    mini_run(&to_k, w->wide);
    mini_run(&to_q, w->wide);
    panel_end(w, dq, m, to, t->ldq, p0 > 0);
}

/* One query head. */
static void simd_attend_back(const struct simd_attend_back *t, float *scratch)
{
    int64_t dim = t->keys.dim, stride = t->keys.stride;
    int64_t before = t->keys.prefix, end = before + t->rows;
    struct tile w = tile_in(scratch, dim);

    for (int64_t r = 0; r < t->rows; r++) {
        score_rows(t->dout + r * t->ldo, t->out + r * t->ldo, DYTI_F32, 0, 0,
                   dim, 1.0f, &w.delta[r], 1);
    }
    for (int64_t p0 = 0, n = 0; p0 < end && t->rows > 0; p0 += n) {
        int64_t at = run_from(&t->keys, p0, end).first;
        int64_t first = p0 < before ? 0 : p0 - before; /* row that sees p0 */
        struct panel dk = panel_out(&w, t->dk + at, stride, w.spare_dk);
        struct panel dv = panel_out(&w, t->dv + at, stride, w.spare_dv);
        bool home = dk.p == t->dk + at, add = t->add || p0 < before;

        n = tile_keys(&t->keys, p0, end);
        load_keys(&t->keys, p0, n, &w);
        tile_turn(w.v.p, w.v.ld, n, dim, w.vt, TILE_K);
        for (int64_t r = first; r < t->rows; r += TILE_Q) {
            back_block(t, &w, p0, n, r, at_most(TILE_Q, t->rows - r), dk, dv,
                       r > first || (home && add));
        }
        panel_end(&w, dk, n, t->dk + at, stride, add);
        panel_end(&w, dv, n, t->dv + at, stride, add);
    }
}
