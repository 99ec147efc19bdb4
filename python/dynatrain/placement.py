"""Which box of a tensor a rank holds, by the placements of a DTensor.  Pure
numbers: no framework is imported here.

A placement is ("replicate",), ("shard", dim) or ("strided", dim, split): the
last is a cut that is made before the mesh dimensions to its right but inside of
their cuts, as FSDP over tensor parallelism makes it."""

from typing import Any, List, Optional, Sequence, Tuple

from dynatrain import errors

Placement = Tuple[Any, ...]  # see above
Box = Tuple[Tuple[int, ...], Tuple[int, ...]]


def of_torch(placements: Sequence[Any], name: str) -> List[Placement]:
    """Placements of torch.distributed.tensor, by duck."""
    found: List[Placement] = []
    for placement in placements:
        kind = type(placement).__name__
        if kind == "Replicate":
            found.append(("replicate",))
        elif kind == "_StridedShard":
            found.append(("strided", placement.dim,
                          placement.split_factor))
        elif kind == "Shard":
            found.append(("shard", placement.dim))
        else:
            raise errors.UnsupportedError(
                f"{name}: placement {placement} holds no part of the tensor")
    return found


def _order(placements: Sequence[Placement], mesh: Sequence[int], dim: int,
           name: str) -> List[int]:
    """Mesh dimensions that cut `dim`, outermost cut first."""
    order: List[int] = []
    for axis in reversed(range(len(placements))):
        placement = placements[axis]
        if placement[0] == "replicate" or placement[1] != dim:
            continue
        if placement[0] == "shard":
            order.insert(0, axis)
            continue
        place, inside = 0, 1
        while inside < placement[2] and place < len(order):
            inside *= mesh[order[place]]
            place += 1
        if inside != placement[2]:
            raise errors.UnsupportedError(
                f"{name}: a strided shard over {placement[2]} parts of "
                f"dimension {dim}, which the mesh {tuple(mesh)} does not make")
        order.insert(place, axis)
    return order


def box_of(shape: Sequence[int], placements: Sequence[Placement],
           mesh: Sequence[int], coordinate: Sequence[int], name: str = ""
           ) -> Optional[Box]:
    """The box [lo, hi) at a coordinate of the mesh; None: nothing.  Each cut
    is in blocks of ceil(n / parts), later ones shorter or empty."""
    lo, hi = [0] * len(shape), list(shape)
    for dim in range(len(shape)):
        for axis in _order(placements, mesh, dim, name):
            width = hi[dim] - lo[dim]
            block = -(-width // mesh[axis])
            first = min(coordinate[axis] * block, width)
            last = min(first + block, width)
            lo[dim], hi[dim] = lo[dim] + first, lo[dim] + last
    if any(a == b for a, b in zip(lo, hi)):
        return None
    return tuple(lo), tuple(hi)
