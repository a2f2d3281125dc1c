"""An optimizer's state: whether it fits, and one file for it that holds data only."""

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import GradwrightError, StateError

Array = np.ndarray[Any, Any]
FORMAT = 1
_KEYS = {"rule", "steps", "seed", "micro", "shared", "parameters"}
_ENTRY_KEYS = {"name", "identity", "steps", "hyperparams", "slots", "summed"}
_NARROW = "bfloat16"  # a file has its bits as uint16: np.load would forget the dtype
_FROM_HERE = "what .state_dict() gave, or a file that .save wrote"


def narrow_dtype() -> np.dtype[Any]:
    """The bfloat16 of ml_dtypes, which NumPy itself has not."""
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        raise GradwrightError(
            "bfloat16 as a NumPy array needs ml_dtypes", "pip install ml_dtypes"
        ) from None
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a group that are numbers: a schedule is code, and no state."""
    values = {k: v.item() if isinstance(v, np.generic) else v for k, v in group.items()}
    return {k: v for k, v in values.items() if isinstance(v, (bool, int, float))}


def check(state: Mapping[str, Any], rule: str) -> None:
    """Raise unless this is a state of the rule, with all that belongs to one."""
    lacking = _KEYS - set(state) or set().union(
        *(_ENTRY_KEYS - set(e) for e in state["parameters"])
    )
    if lacking:
        raise StateError(f"the state has no {', '.join(sorted(lacking))}", _FROM_HERE)
    if state["rule"] != rule:
        raise StateError(
            f"the state of {state['rule']} for the rule {rule}", "an optimizer of the same rule"
        )


def check_array(name: str, saved: Any, here: Array) -> None:
    """Raise unless a saved array is like the one whose place it takes."""
    new = np.asarray(saved)
    if (here.shape, here.dtype) != (new.shape, new.dtype):
        raise StateError(
            f"the state has {name} as {new.dtype}{new.shape}, here it is {here.dtype}{here.shape}",
            "parameters of the same shapes and dtypes",
        )


def check_slots(name: str, saved: Mapping[str, Any], here: Mapping[str, Array]) -> None:
    for slot, value in saved.items():
        if slot not in here:
            raise StateError(
                f"the state has a slot {name}.{slot}, which is not here", "the same rule"
            )
        check_array(f"{name}.{slot}", value, here[slot])


def write(path: str, state: Mapping[str, Any], weights: Mapping[str, Array]) -> None:
    """Write to a file beside the path, then move it there: a write that fails leaves no trace."""
    arrays = {f"w/{name}": w for name, w in weights.items()}
    plain = []
    for entry in state["parameters"]:
        name = entry["name"]
        arrays |= {f"slot/{name}/{slot}": value for slot, value in entry["slots"].items()}
        if entry["summed"] is not None:
            arrays[f"summed/{name}"] = entry["summed"]
        plain.append({k: v for k, v in entry.items() if k not in ("slots", "summed")})
    narrow = [name for name, array in arrays.items() if array.dtype.name == _NARROW]
    arrays |= {name: arrays[name].view(np.uint16) for name in narrow}
    whole = {**state, "parameters": plain, "format": FORMAT, _NARROW: narrow}
    arrays["state"] = np.array(json.dumps(whole))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(path))) as folder:
        temporary = os.path.join(folder, "state.npz")
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub takes no dict
        os.replace(temporary, path)


def read(path: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """The state in a file, and the weights by name."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        state = json.loads(str(arrays.pop("state")))
        version, parameters = state.pop("format"), state["parameters"]
        narrow = state.pop(_NARROW, [])
        arrays |= {name: arrays[name].view(narrow_dtype()) for name in narrow}
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise StateError(f"{path} is no saved optimizer: {error!r}", _FROM_HERE) from error
    if version != FORMAT:
        raise StateError(
            f"{path} has format {version}, this version of gradwright reads format {FORMAT}",
            "the version that wrote it",
        )
    for entry in parameters:
        prefix = f"slot/{entry['name']}/"
        slots = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        # another parameter's name may start with this one's; no slot's name has a slash
        entry["slots"] = {slot: value for slot, value in slots.items() if "/" not in slot}
        entry["summed"] = arrays.get(f"summed/{entry['name']}")
    return state, {k.removeprefix("w/"): v for k, v in arrays.items() if k.startswith("w/")}


def difference(missing: Sequence[str], extra: Sequence[str]) -> str:
    """What a state lacks, and what it has too many of, in words."""
    parts = [f"nothing for {', '.join(missing)}"] * bool(missing)
    parts += [f"{', '.join(extra)}, which is not here"] * bool(extra)
    return " and ".join(parts)
