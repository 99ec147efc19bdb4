"""Modules, tensors and optimizers of torch that are not what they seem: each is
read as it is, or refused by name.  usage: test_modules.py LIBDYNATRAIN"""

import sys
import tempfile
import types

import support

support.use_library(sys.argv[1])
try:
    import torch
    from torch import nn
except ImportError:
    support.skip("no torch")
import dynatrain.torch  # noqa: E402
from dynatrain import Row, errors, tensors  # noqa: E402


def names(module):
    return [row.name for row in dynatrain.torch.module_rows(module)]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.lora_A = nn.Linear(3, 1)


class FullyShardedDataParallel(nn.Module):
    """A double: the first FSDP wants a process group."""

    sharding_strategy = types.SimpleNamespace(name="FULL_SHARD")


def wrapped_modules_have_their_own_names():
    plain = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    want = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert names(plain) == names(torch.compile(plain)) == want
    assert names(nn.DataParallel(plain)) == want
    plain[0] = torch.compile(plain[0])
    assert names(plain) == want and names(Tied()) == ["embed.weight"]


def what_is_no_weight_is_refused_by_name():
    partition = nn.Linear(3, 3)
    partition.weight.ds_tensor = torch.zeros(2)
    for module, words in ((nn.Linear(3, 3).state_dict(), ["OrderedDict"]),
                          (Adapted(), ["lora_A", "merge_adapter"]),
                          (nn.LazyLinear(3), ["weight", "shape"]),
                          (partition, ["weight", "ZeRO-3"]),
                          (FullyShardedDataParallel(), ["fully_shard"])):
        support.raises(errors.Error, lambda m=module: names(m), *words)


def tensors_without_plain_memory_are_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        fake = torch.zeros(2, 2)
    for tensor, word in ((torch.eye(3).to_sparse(), "sparse"),
                         (fake, "FakeTensor"),
                         (torch.zeros(2, device="meta"), "meta"),
                         (torch._neg_view(torch.ones(2)), "resolve_neg"),
                         (torch.zeros(2, dtype=torch.float8_e4m3fn), "float8"),
                         (torch.nested.nested_tensor([torch.zeros(2)]),
                          "NestedTensor")):
        support.raises(errors.UnsupportedError,
                       lambda t=tensor: Row("w", t).memory(), "row w", word)
    taken = tensors.memory_of(torch.zeros(3, 2, requires_grad=True).t())
    assert taken.shape == (2, 3) and taken.stride == (1, 2)


class Wrapper:
    """An optimizer as accelerate wraps it: it has the method, and no hooks."""

    def __init__(self, optimizer):
        self.optimizer, self.state = optimizer, optimizer.state

    def register_step_pre_hook(self, hook):
        raise AssertionError("of the wrapper")

    def step(self):
        self.optimizer.step()


def a_step_while_offered_raises_in_wrappers_too():
    module = nn.Linear(3, 3)
    optimizer = Wrapper(torch.optim.SGD(module.parameters(), lr=1.0))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/job.sock"
        with dynatrain.torch.Trainer(module, optimizer, address=address,
                                     timeout=30) as trainer:
            ticket = trainer.offer(1)
            support.raises(errors.StateError, optimizer.step, "version 1")
            ticket.close()
            optimizer.step()
        support.raises(errors.InvalidError, lambda: dynatrain.torch.Trainer(
            module, object(), address=address, timeout=30), "writing()")


def parameters_that_moved_are_not_offered():
    """What lies at the old place is an old version."""
    module = nn.Linear(3, 3)
    with tempfile.TemporaryDirectory() as folder:
        with dynatrain.torch.Trainer(module, address=f"unix:{folder}/job.sock",
                                     timeout=30) as trainer:
            trainer.offer(1).close()
            with torch.no_grad():
                module.weight.normal_()
            trainer.offer(2).close()
            module.to(torch.bfloat16)
            support.raises(errors.StateError, lambda: trainer.offer(3),
                           "2 parameters", "weight", "module.to()")


def parameters_that_were_replaced_are_not_offered():
    """The module has others by their names, and those of before live on."""
    for replace in (
            lambda m: m.load_state_dict({k: torch.ones_like(v) for k, v in
                                         m.state_dict().items()}, assign=True),
            lambda m: setattr(m, "weight", nn.Parameter(torch.ones(3, 3))),
            lambda m: delattr(m, "weight")):
        module = nn.Linear(3, 3)
        with tempfile.TemporaryDirectory() as folder:
            with dynatrain.torch.Trainer(
                    module, address=f"unix:{folder}/job.sock",
                    timeout=30) as trainer:
                module.load_state_dict(module.state_dict())  # in place
                trainer.offer(1).close()
                replace(module)
                support.raises(errors.StateError, lambda: trainer.offer(2),
                               "weight", "a loaded state dict")


def a_mapped_module_that_was_given_others_does_not_receive():
    """In both sets of `double`, and what it has meanwhile is no reason."""
    source, module = nn.Linear(3, 3), nn.Linear(3, 3)
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/job.sock"
        with dynatrain.torch.Trainer(
                source, address=address, timeout=30) as trainer, \
            dynatrain.torch.Receiver(
                module, address=address, timeout=30, memory="mapped",
                commit="double") as receiver:
            for version in (1, 2, 3):
                with torch.no_grad():
                    source.weight.fill_(version)
                ticket = trainer.offer(version)
                receiver.receive(version, 30)
                assert ticket.wait(30)
                assert torch.equal(module.weight, source.weight)
            module.weight = nn.Parameter(torch.ones(3, 3))
            support.raises(errors.StateError, lambda: receiver.receive(0, 30),
                           "1 parameters", "weight")


def an_optimizer_s_state_is_offered_where_there_is_some():
    module = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(module.parameters())
    with tempfile.TemporaryDirectory() as folder:
        options = {"state": True, "timeout": 30,
                   "address": f"unix:{folder}/job.sock"}
        support.raises(errors.InvalidError, lambda: dynatrain.torch.Trainer(
            module, **options), "no optimizer")
        support.raises(errors.StateError, lambda: dynatrain.torch.Trainer(
            module, optimizer, **options), "AdamW", "first step")
        module(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        with dynatrain.torch.Trainer(module, optimizer, **options) as trainer:
            assert [row.kind for row in trainer.rows] == [
                "param", "exp_avg", "exp_avg_sq"] * 2
            optimizer.step()
            trainer.offer(1).close()
            optimizer.load_state_dict(
                torch.optim.AdamW(module.parameters()).state_dict())
            support.raises(errors.StateError, lambda: trainer.offer(2),
                           "exp_avg of weight")


if __name__ == "__main__":
    support.run(wrapped_modules_have_their_own_names,
                what_is_no_weight_is_refused_by_name,
                tensors_without_plain_memory_are_refused,
                a_step_while_offered_raises_in_wrappers_too,
                parameters_that_moved_are_not_offered,
                parameters_that_were_replaced_are_not_offered,
                a_mapped_module_that_was_given_others_does_not_receive,
                an_optimizer_s_state_is_offered_where_there_is_some)
