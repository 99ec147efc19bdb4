// ROWS: a warp moves a row, or the part that it has of one: single elements to
// a border of 32 bytes of the destination, then 16 bytes a thread, then single
// ones.  Where two warps share a row, they part at 128.
#ifndef DYTI_DEVICE_CUDA_COPY_ROWS_CUH
#define DYTI_DEVICE_CUDA_COPY_ROWS_CUH

#include "device/cuda/copy_access.cuh"

namespace
{

constexpr uint64_t BORDER = 128;

// 16 bytes from accesses of U bytes.
template <int U> __device__ __forceinline__ uint4 load_vector(uint64_t src)
{
    uint32_t word[4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        word[i] = static_cast<uint32_t>(
            load_bits(src + static_cast<uint64_t>(i) * 4, 4, U));
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <> __device__ __forceinline__ uint4 load_vector<16>(uint64_t src)
{
    return load_at<uint4>(src);
}

template <> __device__ __forceinline__ uint4 load_vector<8>(uint64_t src)
{
    uint2 a = load_at<uint2>(src), b = load_at<uint2>(src + 8);

    return make_uint4(a.x, a.y, b.x, b.y);
}

// Vectors of one row, no conversion; several are under way at a time.
template <int U>
__device__ __forceinline__ void row_vectors(uint64_t src, uint64_t dst,
                                            uint64_t vectors)
{
    constexpr int AT_A_TIME = 4;
    uint64_t v = threadIdx.x % 32;

    for (; v + 32 * (AT_A_TIME - 1) < vectors; v += 32 * AT_A_TIME) {
        uint4 data[AT_A_TIME];

#pragma unroll
        for (int i = 0; i < AT_A_TIME; i++) {
            data[i] =
                load_vector<U>(src + (v + static_cast<uint64_t>(i) * 32) * 16);
        }
#pragma unroll
        for (int i = 0; i < AT_A_TIME; i++) {
            store_at(dst + (v + static_cast<uint64_t>(i) * 32) * 16, data[i]);
        }
    }
    for (; v < vectors; v += 32) {
        store_at(dst + v * 16, load_vector<U>(src + v * 16));
    }
}

// 16 bytes of the destination from N elements of IN bytes.
template <int IN, int OUT>
__device__ __forceinline__ uint4 convert_vector(uint64_t src, bool is_aligned,
                                                uint32_t from, uint32_t to)
{
    constexpr int N = 16 / OUT, WORDS = N * IN / 4;
    uint32_t in[WORDS], out[4] = {0, 0, 0, 0};

    if (!is_aligned) {
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            in[i] = static_cast<uint32_t>(
                load_bits(src + static_cast<uint64_t>(i) * 4, 4, IN));
        }
    } else if (WORDS == 2) {
        uint2 a = load_at<uint2>(src);

        in[0] = a.x;
        in[1] = a.y;
    } else {
#pragma unroll
        for (int i = 0; i + 3 < WORDS; i += 4) {
            uint4 a = load_at<uint4>(src + static_cast<uint64_t>(i) * 4);

            in[i] = a.x;
            in[i + 1] = a.y;
            in[i + 2] = a.z;
            in[i + 3] = a.w;
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t bits = IN == 4 ? in[i] : in[i / 2] >> 16 * (i % 2) & 0xffffu;

        out[i * OUT / 4] |= convert(bits, from, to) << i * OUT % 4 * 8;
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

template <int IN, int OUT>
__device__ __forceinline__ void row_converted(const box_t *b, uint64_t src,
                                              uint64_t dst, uint64_t vectors)
{
    constexpr uint64_t BYTES = 16 / OUT * IN;
    bool is_aligned = src % (BYTES < 16 ? BYTES : 16) == 0;
    uint32_t from = b->src_dtype, to = b->dst_dtype;

    for (uint64_t v = threadIdx.x % 32; v < vectors; v += 32) {
        store_at(dst + v * 16, convert_vector<IN, OUT>(src + v * BYTES,
                                                       is_aligned, from, to));
    }
}

__device__ __forceinline__ void row_body(const box_t *b, uint64_t src,
                                         uint64_t dst, uint64_t vectors)
{
    if (b->src_dtype != b->dst_dtype) {
        if (b->src_bytes == 4) {
            row_converted<4, 2>(b, src, dst, vectors);
        } else if (b->dst_bytes == 4) {
            row_converted<2, 4>(b, src, dst, vectors);
        } else {
            row_converted<2, 2>(b, src, dst, vectors);
        }
    } else if (src % 16 == 0) {
        row_vectors<16>(src, dst, vectors);
    } else if (src % 8 == 0) {
        row_vectors<8>(src, dst, vectors);
    } else if (src % 4 == 0) {
        row_vectors<4>(src, dst, vectors);
    } else if (src % 2 == 0) {
        row_vectors<2>(src, dst, vectors);
    } else {
        row_vectors<1>(src, dst, vectors);
    }
}

// `count` elements that lie dense on both sides.
__device__ __forceinline__ void move_row(const box_t *b, uint64_t src,
                                         uint64_t dst, uint64_t count)
{
    uint32_t lane = threadIdx.x % 32, in = b->src_bytes, out = b->dst_bytes;
    uint64_t head = smaller(count, (SECTOR - dst % SECTOR) % SECTOR / out);
    uint64_t vectors = (count - head) * out / SECTOR * 2;
    uint64_t tail = head + vectors * 16 / out;

    __syncwarp();
    if (lane < head) {
        move_element(b, src + lane * in, dst + lane * out, in, out);
    }
    __syncwarp(); // together again: a store of a warp is one
    row_body(b, src + head * in, dst + head * out, vectors);
    __syncwarp();
    if (lane < count - tail) {
        move_element(b, src + (tail + lane) * in, dst + (tail + lane) * out, in,
                     out);
    }
}

// Where a row of a box is, and the way to the next.
struct row_walk {
    uint64_t index[3]; // slow to fast, of the axes above rows
    uint64_t src, dst;
};

__device__ __forceinline__ row_walk walk_from(const box_t *b, uint64_t row)
{
    row_walk w = {{0, 0, 0}, b->src, b->dst};

#pragma unroll
    for (int d = 2; d >= 0; d--) {
        row = divide(row, b->size[d], &w.index[d]);
        w.src += static_cast<uint64_t>(b->src_stride[d]) * w.index[d];
        w.dst += static_cast<uint64_t>(b->dst_stride[d]) * w.index[d];
    }
    return w;
}

__device__ __forceinline__ void walk_on(const box_t *b, row_walk *w)
{
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        w->src += static_cast<uint64_t>(b->src_stride[d]);
        w->dst += static_cast<uint64_t>(b->dst_stride[d]);
        if (++w->index[d] < b->size[d]) {
            return;
        }
        w->src -= static_cast<uint64_t>(b->src_stride[d]) * b->size[d];
        w->dst -= static_cast<uint64_t>(b->dst_stride[d]) * b->size[d];
        w->index[d] = 0;
    }
}

// Where the warps before and behind an element part: the row, and its element.
__device__ __forceinline__ part border_of(const box_t *b, uint64_t element)
{
    part at;
    uint64_t beside;

    at.lo = divide(element, b->size[3], &at.hi);
    if (at.hi > 0) {
        beside = (walk_from(b, at.lo).dst + at.hi * b->dst_bytes) % BORDER;
        at.hi += (BORDER - beside) % BORDER / b->dst_bytes;
        if (at.hi >= b->size[3]) {
            at.lo++;
            at.hi = 0;
        }
    }
    return at;
}

__device__ __forceinline__ void move_rows(const box_t *b, part mine,
                                          uint64_t first)
{
    uint64_t count = b->size[0] * b->size[1] * b->size[2] * b->size[3];
    part elements = units_of(mine, first, b->dst_bytes, count);
    part from = border_of(b, elements.lo), to = border_of(b, elements.hi);
    row_walk w = walk_from(b, from.lo);
    uint64_t at = from.hi;

    for (uint64_t row = from.lo; row < to.lo || (row == to.lo && at < to.hi);
         row++) {
        uint64_t end = row == to.lo ? to.hi : b->size[3];

        move_row(b, w.src + at * b->src_bytes, w.dst + at * b->dst_bytes,
                 end - at);
        walk_on(b, &w);
        at = 0;
    }
}

} // namespace

#endif // DYTI_DEVICE_CUDA_COPY_ROWS_CUH
