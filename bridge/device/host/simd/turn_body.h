/* Transposing a tile. */

/* Columns in whole vectors. */
INLINE int64_t padded(int64_t columns)
{
    return (columns + VL - 1) / VL * VL;
}

/* dst[cols][ldd] = srcᵀ, zeros in the columns from `rows` to whole vectors. */
static void tile_turn(const float *src, int64_t stride, int64_t rows,
                      int64_t cols, float *dst, int64_t ldd)
{
    int64_t r = 0, c = 0;

    for (; r + 4 <= rows; r += 4) {
        for (c = 0; c + 4 <= cols; c += 4) {
            v_transpose4(src + r * stride + c, stride, dst + c * ldd + r, ldd);
        }
        for (; c < cols; c++) {
            for (int64_t x = r; x < r + 4; x++) {
                dst[c * ldd + x] = src[x * stride + c];
            }
        }
    }
    for (c = 0; c < cols; c++) {
        for (int64_t x = r; x < padded(rows); x++) {
            dst[c * ldd + x] = x < rows ? src[x * stride + c] : 0.0f;
        }
    }
}
