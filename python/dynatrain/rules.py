"""Tables of rules: which boxes of which tensors a server's fused or renamed
parameter is made of.  The tables are TOML (docs/plugin-rules.md has their schema);
those of the package lie in dynatrain/rules_data/, a user's own are read with load().
"""

import ctypes as c
import pathlib
from typing import Any, Dict, Mapping, Optional

from dynatrain import _abi, errors

_RULE_KEYS = {"name", "part", "flags"}
_PART_KEYS = {"tensor", "cut", "axis", "transposed", "unit", "stack_axis",
              "per_expert", "segments", "segment"}
_EXPERTS = {None: 0, "name": 1, "axis": 2}
_FLAGS = {"read_only": _abi.ROW_READ_ONLY, "alias": _abi.ROW_ALIAS,
          "staged": _abi.ROW_STAGED, "optional": _abi.ROW_OPTIONAL}


class Rules:
    """A table as the library takes it; holds the memory of its rows."""

    def __init__(self, struct: Any, keep: Any = None) -> None:
        self.struct = struct
        self._keep = keep

    @property
    def family(self) -> str:
        return str(self.struct.family.decode())

    def __len__(self) -> int:
        return int(self.struct.rule_count)


def _part(entry: Mapping[str, Any], where: str) -> Any:
    unknown = set(entry) - _PART_KEYS
    if unknown:
        raise errors.ConfigError(
            f"{where}: unknown keys {sorted(unknown)}; "
            f"known are {sorted(_PART_KEYS)}")
    if "tensor" not in entry:
        raise errors.ConfigError(f"{where}: a part needs `tensor`")
    unit = entry.get("unit", 0)
    named = isinstance(unit, str)
    return _abi.sized(
        _abi.RulePart,
        cut=_abi.choice(_abi.CUTS, entry.get("cut", "whole"), "cut"),
        tensor=_abi.encoded(entry["tensor"]), axis=entry.get("axis", 0),
        transposed=int(entry.get("transposed", False)),
        unit=0 if named else unit,
        unit_attribute=_abi.encoded(unit) if named else None,
        stack_axis=entry.get("stack_axis", 0),
        per_expert=_abi.choice(_EXPERTS, entry.get("per_expert"),
                               f"{where}: per_expert"),
        segments=_abi.encoded(entry.get("segments")),
        segment=entry.get("segment", 0))


def from_table(table: Mapping[str, Any], source: str = "rules") -> Rules:
    """Rules from a parsed TOML table."""
    rows = table.get("rule", [])
    rules = (_abi.Rule * len(rows))()
    keep = []
    for index, row in enumerate(rows):
        where = f"{source}: rule {index + 1} ({row.get('name', 'no name')!r})"
        unknown = set(row) - _RULE_KEYS
        if unknown or "name" not in row:
            raise errors.ConfigError(
                f"{where}: unknown keys {sorted(unknown)}" if unknown
                else f"{where}: a rule needs `name`")
        entries = row.get("part", [])
        parts = (_abi.RulePart * len(entries))(
            *[_part(entry, where) for entry in entries])
        flags = 0
        for name in row.get("flags", []):
            flags |= _abi.choice(_FLAGS, name, f"{where}: flag")
        rules[index] = _abi.sized(
            _abi.Rule, part_struct_size=c.sizeof(_abi.RulePart),
            name=_abi.encoded(row["name"]), part=parts,
            part_count=len(entries), flags=flags)
        keep.append(parts)
    struct = _abi.sized(
        _abi.Rules, rule_struct_size=c.sizeof(_abi.Rule),
        family=_abi.encoded(str(table.get("family", source))), rule=rules,
        rule_count=len(rows))
    return Rules(struct, (rules, keep))


def parse(path: pathlib.Path) -> Dict[str, Any]:
    """A TOML file as a dict."""
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        try:
            import tomli as tomllib  # type: ignore
        except ImportError:
            raise errors.UnsupportedError(
                "tables of rules are read by Python 3.11 or newer, or with "
                "the package tomli; the built-in ones need neither") from None
    try:
        with open(path, "rb") as file:
            return dict(tomllib.load(file))
    except (OSError, tomllib.TOMLDecodeError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise errors.ConfigError(f"{path}: {why}") from None


def load(name_or_path: Optional[str]) -> Optional[Rules]:
    """Rules by a path to a TOML file, or the library's own by their name
    ("vllm/llama"); None: tensors are named as in the VPS and not cut."""
    if name_or_path is None:
        return None
    if name_or_path.endswith(".toml"):
        path = pathlib.Path(name_or_path)
        return from_table(parse(path), path.name)
    out = c.POINTER(_abi.Rules)()
    _abi.check(_abi.lib().dyt_rules_builtin(_abi.encoded(name_or_path),
                                            c.byref(out)))
    return Rules(out.contents)
