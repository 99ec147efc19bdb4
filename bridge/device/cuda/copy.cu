// Pack, unpack and copy: one launch moves a whole list of boxes.
//
//   axis    |--- box 0 ---|b1|b2|-------- box 3 --------|     destination bytes
//   warps   |  0  |  1  |  2  |  3  |  4  |  5  |  6  |  7    equal parts
//
// ROWS      a warp moves a row, or the part that it has of one: single elements
//           to a border of 32 bytes of the destination, then 16 bytes a thread,
//           then single ones.  Where two warps share a row, they part at 128.
// ELEMENTS  a thread moves an element; up to 32 boxes are one sequence, which a
//           warp takes in steps that end where a sector of the destination ends
// TURNED    a warp turns 32 x 32 elements in shared memory
#include "device/cuda/convert.cuh"
#include "device/cuda/kernels.h"
#include "device/cuda/warp.cuh"

namespace
{

typedef struct dyti_cuda_box box_t;

constexpr uint64_t SECTOR = 32;
constexpr uint64_t BORDER = 128;
constexpr uint64_t WORTH = 4096; // bytes for a warp
constexpr uint32_t TILE = 32, PITCH = 33;
[[maybe_unused]] constexpr int MIN_BLOCKS =
    5; // on a multiprocessor: 102 registers, no spill

template <class T> __device__ __forceinline__ T load_at(uint64_t address)
{
    return dev_load(reinterpret_cast<const T *>(address));
}

template <class T>
__device__ __forceinline__ void store_at(uint64_t address, T value)
{
    dev_store(reinterpret_cast<T *>(address), value);
}

// `bytes` bytes in accesses of `unit`; little endian.
__device__ __forceinline__ uint64_t load_bits(uint64_t address, uint32_t bytes,
                                              uint32_t unit)
{
    uint64_t bits = 0;

    switch (unit) {
    case 8:
        return load_at<uint64_t>(address);
    case 4:
        for (uint32_t i = 0; i < bytes; i += 4) {
            bits |= static_cast<uint64_t>(load_at<uint32_t>(address + i))
                    << i * 8;
        }
        return bits;
    case 2:
        for (uint32_t i = 0; i < bytes; i += 2) {
            bits |= static_cast<uint64_t>(load_at<uint16_t>(address + i))
                    << i * 8;
        }
        return bits;
    default:
        for (uint32_t i = 0; i < bytes; i++) {
            bits |= static_cast<uint64_t>(load_at<uint8_t>(address + i))
                    << i * 8;
        }
        return bits;
    }
}

__device__ __forceinline__ void store_bits(uint64_t address, uint64_t bits,
                                           uint32_t bytes, uint32_t unit)
{
    switch (unit) {
    case 8:
        store_at<uint64_t>(address, bits);
        break;
    case 4:
        for (uint32_t i = 0; i < bytes; i += 4) {
            store_at(address + i, static_cast<uint32_t>(bits >> i * 8));
        }
        break;
    case 2:
        for (uint32_t i = 0; i < bytes; i += 2) {
            store_at(address + i, static_cast<uint16_t>(bits >> i * 8));
        }
        break;
    default:
        for (uint32_t i = 0; i < bytes; i++) {
            store_at(address + i, static_cast<uint8_t>(bits >> i * 8));
        }
    }
}

__device__ __forceinline__ void move_element(const box_t *b, uint64_t src,
                                             uint64_t dst, uint32_t src_unit,
                                             uint32_t dst_unit)
{
    uint64_t bits;

    if (b->src_bytes == 16) {
        store_at(dst, load_at<uint4>(src));
        return;
    }
    bits = load_bits(src, b->src_bytes, src_unit);
    if (b->src_dtype != b->dst_dtype) {
        bits = convert(static_cast<uint32_t>(bits), b->src_dtype, b->dst_dtype);
    }
    if (b->take > 0) {
        store_bits(dst, bits >> b->skip * 8, b->take, 1);
    } else {
        store_bits(dst, bits, b->dst_bytes, dst_unit);
    }
}

__device__ __forceinline__ uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// The units of a box, each of `each` bytes of the axis, that begin in a part.
__device__ __forceinline__ part units_of(part mine, uint64_t first,
                                         uint64_t each, uint64_t count)
{
    part units = {0, 0};
    uint64_t rest;

    if (mine.lo > first) {
        units.lo = divide(mine.lo - first, each, &rest);
        units.lo += rest > 0;
    }
    if (mine.hi > first) {
        units.hi = divide(mine.hi - first, each, &rest);
        units.hi += rest > 0;
    }
    units.lo = smaller(units.lo, count);
    units.hi = smaller(units.hi, count);
    return units;
}

// ---- rows ------------------------------------------------------------------

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

// ---- elements --------------------------------------------------------------

// What this lane's box, if it is of the right kind, gives to the sequence.
struct share {
    uint64_t lo, behind; // its first element; end of its part of the sequence
};

// The boxes from `i` on that are one sequence; *out_boxes of them.
__device__ __forceinline__ share gather(const box_t *box, const uint64_t *first,
                                        uint32_t i, uint32_t count, part mine,
                                        uint32_t *out_boxes)
{
    uint32_t lane = threadIdx.x % 32, k = i + lane;
    bool fits =
        k < count && first[k] < mine.hi && box[k].variant == DYTI_CUDA_ELEMENTS;
    uint32_t others = ~__ballot_sync(ALL, fits);
    part elements = {0, 0};
    share s;

    *out_boxes =
        others == 0
            ? 32
            : static_cast<uint32_t>(__ffs(static_cast<int>(others))) - 1;
    if (lane < *out_boxes) {
        const box_t *b = box + k;

        elements =
            units_of(mine, first[k], b->take > 0 ? b->take : b->dst_bytes,
                     b->size[0] * b->size[1] * b->size[2] * b->size[3]);
    }
    s.lo = elements.lo;
    s.behind = elements.hi - elements.lo;
    for (uint32_t by = 1; by < 32; by *= 2) {
        uint64_t before = __shfl_up_sync(ALL, s.behind, by);

        s.behind += lane >= by ? before : 0;
    }
    // From here on, of an element of the sequence: minus what is before it.
    s.lo -= s.behind - (elements.hi - elements.lo);
    return s;
}

// The lane whose box has element `t` of the sequence.
__device__ __forceinline__ uint32_t owner_of(uint64_t behind, uint64_t t)
{
    uint32_t owner = 0;

    for (uint32_t step = 16; step > 0; step /= 2) {
        uint64_t end =
            __shfl_sync(ALL, behind, static_cast<int>(owner + step - 1));

        owner += end <= t ? step : 0;
    }
    return owner;
}

__device__ __forceinline__ void element_at(const box_t *b, uint64_t element,
                                           uint64_t *out_src, uint64_t *out_dst)
{
    *out_src = b->src;
    *out_dst = b->dst;
#pragma unroll
    for (int d = 3; d >= 0; d--) {
        uint64_t index = element;

        if (d > 0) {
            element = divide(element, b->size[d], &index);
        }
        *out_src += static_cast<uint64_t>(b->src_stride[d]) * index;
        *out_dst += static_cast<uint64_t>(b->dst_stride[d]) * index;
    }
}

// How many of a step's elements: up to the last end of a sector.
__device__ __forceinline__ uint32_t step_of(uint64_t dst, uint32_t bytes)
{
    uint32_t lane = threadIdx.x % 32;
    uint64_t before = __shfl_up_sync(ALL, dst / SECTOR, 1);
    uint32_t starts = __ballot_sync(ALL, lane > 0 && dst / SECTOR != before);
    uint64_t end = __shfl_sync(ALL, dst + bytes, 31);

    return end % SECTOR == 0 || starts == 0
               ? 32
               : 31 - static_cast<uint32_t>(__clz(static_cast<int>(starts)));
}

// All that this warp has of the boxes from `i` on; how many boxes that are.
__device__ __forceinline__ uint32_t move_elements(const box_t *box,
                                                  const uint64_t *first,
                                                  uint32_t i, uint32_t count,
                                                  part mine)
{
    uint32_t lane = threadIdx.x % 32, boxes, step;
    share s = gather(box, first, i, count, mine, &boxes);
    uint64_t total = __shfl_sync(ALL, s.behind, 31);

    for (uint64_t at = 0; at < total; at += step) {
        uint64_t t = smaller(at + lane, total - 1), src, dst;
        uint32_t owner = owner_of(s.behind, t);
        uint64_t lo = __shfl_sync(ALL, s.lo, static_cast<int>(owner));
        const box_t *b = box + i + owner;

        element_at(b, t + lo, &src, &dst);
        step = step_of(dst, b->dst_bytes);
        if (lane < step && at + lane < total) {
            move_element(b, src, dst, b->src_unit, b->dst_unit);
        }
    }
    return boxes;
}

// ---- turned ----------------------------------------------------------------

// One axis of tiles: the first ends where a sector ends.
struct tiling {
    uint64_t size, before, count;
};

__device__ __forceinline__ tiling tiling_of(uint64_t address, uint32_t bytes,
                                            uint64_t size)
{
    tiling t = {size, (SECTOR - address % SECTOR) % SECTOR / bytes, 0};

    t.before = t.before < size ? t.before : 0;
    t.count = (t.before > 0) + (size - t.before + TILE - 1) / TILE;
    return t;
}

__device__ __forceinline__ part tile_of(tiling t, uint64_t index)
{
    part p;

    if (t.before > 0) {
        p.lo = index == 0 ? 0 : t.before + (index - 1) * TILE;
        p.hi = t.before + index * TILE;
    } else {
        p.lo = index * TILE;
        p.hi = p.lo + TILE;
    }
    p.hi = smaller(p.hi, t.size);
    return p;
}

template <class Shared>
__device__ __forceinline__ void turn_tile(const box_t *b, uint64_t src,
                                          uint64_t dst, part x, part y,
                                          Shared tile)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t at = threadIdx.x / 32 * TILE * PITCH;
    uint32_t xs = static_cast<uint32_t>(x.hi - x.lo);
    uint32_t ys = static_cast<uint32_t>(y.hi - y.lo);
    uint64_t src_x = static_cast<uint64_t>(b->src_stride[3]);
    uint64_t dst_y = static_cast<uint64_t>(b->dst_stride[2]);
    uint32_t in = b->src_bytes, out = b->dst_bytes;

    src += x.lo * src_x + (y.lo + lane) * in;
    dst += y.lo * dst_y + (x.lo + lane) * out;
    __syncwarp();
    if (lane < ys) {
        for (uint32_t j = 0; j < xs; j++) {
            tile[at + j * PITCH + lane] = convert(
                static_cast<uint32_t>(load_bits(src + j * src_x, in, in)),
                b->src_dtype, b->dst_dtype);
        }
    }
    __syncwarp();
    if (lane < xs) {
        for (uint32_t j = 0; j < ys; j++) {
            store_bits(dst + j * dst_y, tile[at + lane * PITCH + j], out, out);
        }
    }
}

template <class Shared>
__device__ __forceinline__ void move_turned(const box_t *b, part mine,
                                            uint64_t first, uint64_t behind,
                                            Shared tile)
{
    tiling x = tiling_of(b->dst, b->dst_bytes, b->size[3]);
    tiling y = tiling_of(b->src, b->src_bytes, b->size[2]);
    uint64_t flat = x.count * y.count, count = flat * b->size[0] * b->size[1];
    uint64_t rest, each = divide(behind - first, count, &rest);
    part tiles = units_of(mine, first, each, count);

    for (uint64_t t = tiles.lo; t < tiles.hi; t++) {
        uint64_t in_plane, ty, d1;
        uint64_t plane = divide(t, flat, &in_plane);
        uint64_t tx = divide(in_plane, y.count, &ty);
        uint64_t d0 = divide(plane, b->size[1], &d1);

        turn_tile(b,
                  b->src + static_cast<uint64_t>(b->src_stride[0]) * d0 +
                      static_cast<uint64_t>(b->src_stride[1]) * d1,
                  b->dst + static_cast<uint64_t>(b->dst_stride[0]) * d0 +
                      static_cast<uint64_t>(b->dst_stride[1]) * d1,
                  tile_of(x, tx), tile_of(y, ty), tile);
    }
}

// ---- the kernel ------------------------------------------------------------

__global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    copy_boxes(const box_t *box, const uint64_t *first, uint32_t count,
               uint64_t bytes)
{
    DYTI_SHARED(uint32_t, tile, WARPS * TILE * PITCH);
    part mine = part_of(bytes);

    if (mine.lo == mine.hi) {
        return;
    }
    for (uint32_t i = box_at(first, count, mine.lo);
         i < count && first[i] < mine.hi;) {
        switch (box[i].variant) {
        case DYTI_CUDA_ROWS:
            move_rows(box + i, mine, first[i]);
            i++;
            break;
        case DYTI_CUDA_TURNED:
            move_turned(box + i, mine, first[i], first[i + 1], tile);
            i++;
            break;
        default:
            i += move_elements(box, first, i, count, mine);
        }
    }
}

} // namespace

int dyti_cuda_copy_launch(const struct dyti_cuda_box *box,
                          const uint64_t *first, uint32_t count, uint64_t bytes,
                          uint32_t most_blocks, void *stream)
{
    uint64_t blocks = (bytes + WARPS * WORTH - 1) / (WARPS * WORTH);

    most_blocks = most_blocks == 0 ? 4096 : most_blocks;
    if (bytes == 0) {
        return cudaSuccess;
    }
    return DYTI_LAUNCH(
        copy_boxes,
        static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks),
        BLOCK, 0, stream, box, first, count, bytes);
}
