"""What the workers of servers say of a model, by doubles of its modules: rows,
places in the replica, and what is refused by name.  No framework is needed."""

import support  # noqa: F401  (finds the package)

from dynatrain import _server, errors


class Parameter:
    """What of a tensor is looked at."""

    def __init__(self, address, *shape):
        self.address, self.shape = address, shape
        self.dtype = "torch.bfloat16"
        self.data = self

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def data_ptr(self):
        return self.address

    def stride(self):
        return (self.shape[-1], 1)[-len(self.shape):]


class UnquantizedLinearMethod:
    pass


class Fp8LinearMethod:
    pass


class Module:
    def __init__(self, method=None, **more):
        if method is not None:
            self.quant_method = method()
        vars(self).update(more)


class Map:
    """An expert map: this rank's place of each expert, or -1."""

    def __init__(self, *places):
        self.places = places

    def tolist(self):
        return list(self.places)


class Model:
    def __init__(self, modules, parameters=()):
        self._modules, self._parameters = modules, parameters

    def modules(self):
        return list(self._modules.values())

    def named_modules(self, remove_duplicate=True):
        return list(self._modules.items())

    def named_parameters(self, remove_duplicate=True):
        return list(self._parameters)


class Group:
    def __init__(self, rank, size):
        self.rank_in_group, self.world_size = rank, size


def plain_layers_are_taken():
    _server.refuse(Model({"": Module(),
                          "a": Module(UnquantizedLinearMethod)}))


def quantised_layers_and_adapters_are_named():
    model = Model({"": Module(), "a.qkv_proj": Module(Fp8LinearMethod),
                   "a.o_proj": Module(UnquantizedLinearMethod),
                   "a.down_proj": Module(Fp8LinearMethod)})
    said = support.raises(
        errors.UnsupportedError, lambda: _server.refuse(model, lora=True),
        "3 layers", "a.qkv_proj (Fp8LinearMethod)", "a.down_proj", "LoRA")
    assert "o_proj" not in str(said), said


def packed_rows_are_lent_memory():
    layer = Module(output_partition_sizes=[4, 2, 2], input_size_per_partition=3)
    rows, of = _server.rows(Model(
        {"": Module(), "l": layer}, [("l.weight", Parameter(0, 0))]))
    assert rows[0].staged and tuple(rows[0].shape) == (8, 3), rows
    assert rows[0].dtype == "bfloat16" and of == [(0, layer)]


def tied_rows_are_one():
    head, embed = Module(), Module()
    rows, of = _server.rows(Model({"": Module(), "embed": embed, "head": head}, [
        ("embed.weight", Parameter(64, 5, 2)),
        ("norm", Parameter(256, 2)),
        ("head.weight", Parameter(64, 5, 2))]))
    assert [row.alias for row in rows] == [False, False, True], rows
    assert [first for first, _ in of] == [0, 1, 0] and of[2][1] is head


def places_count_stages_first():
    where = _server.place(Group(2, 3), Group(1, 2),
                          {"layers": 30, "bias": False, "type": "llama"}, 64)
    assert where == {"rank": 5, "size": 6, "tp": (2, 3), "pp": (1, 2),
                     "attributes": {"layers": 30, "head_dim": 64}}, where


def experts_are_those_of_the_map():
    moe = Module(expert_map=Map(-1, 1, -1, 0, 2))
    model = Model({"": Module(), "moe": moe})
    where = _server.place(Group(0, 2), Group(0, 1), {}, 8, Group(1, 2), model)
    assert where["ep"] == (1, 2) and where["experts"] == [3, 1, 4], where
    assert _server.experts(Model({"": Module()})) is None


if __name__ == "__main__":
    support.run(plain_layers_are_taken, quantised_layers_and_adapters_are_named,
                packed_rows_are_lent_memory, tied_rows_are_one,
                places_count_stages_first, experts_are_those_of_the_map)
