"""Models, layouts, plans and schedules through the library of this build.
usage: test_binding.py LIBDYNATRAIN"""

import gc
import json
import pathlib
import sys

import support

support.use_library(sys.argv[1])
import dynatrain  # noqa: E402
from dynatrain import _abi, errors, rules  # noqa: E402

MODELS = support.ROOT / "configs" / "models"


def the_version_is_the_package_s():
    assert _abi.lib().dyt_version_text().decode() == dynatrain.__version__


def a_model_by_its_config():
    with dynatrain.Model.from_config(MODELS / "llama2-7b") as model:
        assert model.elements == 6738415616, model.elements
        index = model.find("model.layers.3.mlp.down_proj.weight")
        info = model.tensor(index)
        assert info.shape == (4096, 11008) and info.layer == 3, info
        assert len(list(model)) == len(model)
        problem = support.raises(errors.InvalidError, lambda: model.find(
            "model.layers.3.mlp.down_proj.weigth"), "down_proj.weight")
        assert "DYT_ERR_INVALID" in str(problem)
    support.raises(errors.StateError, lambda: model.elements, "closed")
    support.raises(errors.ConfigError, lambda: dynatrain.Model.from_config(
        {"model_type": "no such family"}))


def a_model_by_names():
    model = dynatrain.Model.from_tensors([("a", (3, 5)), ("b", (7,))])
    assert model.elements == 22 and model.tensor(1).name == "b"
    support.raises(errors.InvalidError, lambda: dynatrain.Model.from_tensors(
        [("a", (3,)), ("a", (4,))]), "a")


def layouts_plans_schedules():
    model = dynatrain.Model.from_config(MODELS / "llama2-7b")
    one = model.layout("vllm:tp=8")
    two = model.layout("megatron:tp=4,pp=2", kinds=["param"])
    assert one.world_size == two.world_size == 8
    assert one.fingerprint != two.fingerprint
    shards = one.shards(7)
    assert all(hi > lo for s in shards for lo, hi in zip(s.lo, s.hi))
    held = sum(1 for s in shards if s.kind == 0)
    assert held == len(shards) > 200
    assert "ranks" in json.dumps(one.json())
    plan = two.plan(one)
    totals = plan.totals
    assert totals["host_bytes"] > 0 and totals["kept_bytes"] > 0, totals
    assert plan.text
    schedule = plan.schedule("xor")
    assert schedule.totals["rounds"] >= 7, schedule.totals
    support.raises(errors.Error, lambda: plan.schedule("best"), "xor")
    support.raises(errors.LayoutError, lambda: model.layout("vllm:tp=7"), "7")
    support.raises(errors.ConfigError, lambda: model.layout("vllm:tq=7"))


def handles_hold_what_they_need():
    """Whatever the order in which they are given back."""
    model = dynatrain.Model.from_config(MODELS / "llama2-7b")
    schedule = model.layout("megatron:tp=4").plan(
        model.layout("vllm:tp=4")).schedule()
    del model
    gc.collect()
    assert schedule.totals["messages"] > 0


def tables_equal_those_of_the_library():
    """configs/rules as read here are the rows that the library was built
    with."""
    try:
        import tomllib  # noqa: F401
    except ImportError:
        print("Python before 3.11: tables of TOML are not compared")
        return
    folder = support.ROOT / "configs" / "rules"
    seen = 0
    for path in sorted(folder.rglob("*.toml")):
        table = rules.parse(path)
        mine = rules.from_table(table).struct
        for name in [table["family"], *table.get("also", [])]:
            theirs = rules.load(name).struct
            assert rows_of(mine) == rows_of(theirs), (path, name)
            seen += 1
    assert seen >= 6, seen
    support.raises(errors.InvalidError, lambda: rules.load("vllm/lama"),
                   "vllm/llama")


def rows_of(struct):
    def part(p):
        return tuple(getattr(p, name) for name, _ in p._fields_)
    return [(rule.name, rule.flags,
             [part(rule.part[i]) for i in range(rule.part_count)])
            for rule in struct.rule[:struct.rule_count]]


def a_layout_of_views_is_checked():
    missing = pathlib.Path("no such library.so")
    assert not missing.exists()
    support.raises(errors.InvalidError,
                   lambda: dynatrain.Session("watcher"), "watcher", "trainer")


if __name__ == "__main__":
    if not hasattr(_abi.lib(), "dyt_model_create"):
        support.skip("this library has no models")
    support.run(the_version_is_the_package_s, a_model_by_its_config,
                a_model_by_names, layouts_plans_schedules, handles_hold_what_they_need,
                tables_equal_those_of_the_library,
                a_layout_of_views_is_checked)
