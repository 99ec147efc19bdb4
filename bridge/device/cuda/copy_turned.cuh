// TURNED: a warp turns 32 x 32 elements in shared memory.
#ifndef DYTI_DEVICE_CUDA_COPY_TURNED_CUH
#define DYTI_DEVICE_CUDA_COPY_TURNED_CUH

#include "device/cuda/copy_access.cuh"

namespace
{

constexpr uint32_t TILE = 32, PITCH = 33;

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

} // namespace

#endif // DYTI_DEVICE_CUDA_COPY_TURNED_CUH
