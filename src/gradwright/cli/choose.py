"""Which rule or op is meant: ``sgd``, ``sgd(lr=0.5)``, ``FILE.py:NAME``; and what is set of it."""

import ast
import difflib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import rules, schedules
from ..equation import Given, Required
from ..errors import GradwrightError, SignatureError
from ..op import Op
from ..optimizer import checked_seed
from ..rule import Options, Rule
from .stop import WrongUsage, showing_lines_of, text_of

_OPTIONS = {"domain", *(f.name for f in fields(Options))}


@dataclass(frozen=True)
class Chosen:
    """A rule or an op, as its user called it."""

    label: str
    found: Any
    file: str = ""  # the user's, if it is from one


# --- values ------------------------------------------------------------------------------------
def parsed(text: str) -> Any:
    """A number, or another Python literal, or a schedule; any other text is itself."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, SignatureError):
        return text


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        try:
            return schedules.parse(ast.unparse(node))
        except SignatureError as error:
            if ast.unparse(node.func) not in schedules.WRITTEN:
                raise
            raise WrongUsage(error.text("")) from None
    return ast.literal_eval(node)


def _keywords(node: ast.Call) -> dict[str, Any]:
    return {str(k.arg): _value(k.value) for k in node.keywords}


def settings(pairs: Iterable[str]) -> dict[str, Any]:
    """``["lr=0.05", …]`` as a dict."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (equals and name.strip().isidentifier() and value.strip()):
            raise WrongUsage(f"--set {pair}: what is set is written name=value, as in lr=0.05")
        found[name.strip()] = parsed(value)
    return found


# --- names -------------------------------------------------------------------------------------
def choose(text: str) -> Chosen:
    """The rule or op that a text names, with the keywords written behind it."""
    name, keywords = _split(text)
    if ".py" in name:
        file, found = _of_file(name)
    else:
        file, found = "", _named(name, {n: getattr(rules, n) for n in rules.__all__}, "rule")
    return Chosen(text, set_all(found, keywords, text, file) if keywords else found, file)


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """``sgd(lr=0.5)`` as ``"sgd", {"lr": 0.5}``."""
    name, bracket, _ = text.partition("(")
    if not bracket:
        return text.strip(), {}
    try:
        call = ast.parse(f"f{text[len(name) :].strip()}", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return name.strip(), _keywords(call)
    except (SyntaxError, ValueError, AssertionError):
        raise WrongUsage(f"{text}: a rule is written sgd, or sgd(lr=0.5)") from None


def _named(name: str, known: Mapping[str, Any], what: str) -> Any:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known) or 'none'}"
    raise WrongUsage(f"no {what} {name!r}; {hint}")


def choose_all(text: str) -> list[Chosen]:
    """``FILE.py:NAME``, or all the rules and ops of ``FILE.py``."""
    file, mine, name = _in_file(text)
    if name:
        return [Chosen(name, _named(name, mine, f"rule or op in {file.name}:"), str(file))]
    if not mine:
        raise WrongUsage(f"{file.name} has {_list(mine)}")
    return [Chosen(name, found, str(file)) for name, found in mine.items()]


def _of_file(text: str) -> tuple[str, Any]:
    """``FILE.py:NAME``, or ``FILE.py`` where it has one rule or op only."""
    file, mine, name = _in_file(text)
    if not name and len(mine) == 1:
        return str(file), next(iter(mine.values()))
    if not name:
        raise WrongUsage(f"{file.name} has {_list(mine)}; say which: {file.name}:NAME")
    return str(file), _named(name, mine, f"rule or op in {file.name}:")


def _in_file(text: str) -> tuple[Path, dict[str, Any], str]:
    """The file that is named, its rules and ops, and which of them is named."""
    path, _, name = text.partition(".py")
    file = Path(f"{path}.py").resolve()
    if not file.is_file():
        raise WrongUsage(f"no file {path}.py")
    module = _imported(file)
    mine = {n: v for n, v in vars(module).items() if isinstance(v, (Rule, Op)) and n[0] != "_"}
    return file, mine, name.removeprefix(":")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "no rule and no op"


def _imported(file: Path) -> ModuleType:
    """A user's file as a module; the files beside it can be imported, as in a script."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None, "the name ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    try:
        with showing_lines_of(str(file)):
            spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module


# --- rules to train with -----------------------------------------------------------------------
def choose_rules(texts: Sequence[str], pairs: Iterable[str], seed: int) -> list[Chosen]:
    """The rules that texts name, with what is set, and a seed for those that draw."""
    values = settings(pairs)
    chosen = [choose(text) for text in texts]
    for c in chosen:
        if not isinstance(c.found, Rule):
            raise WrongUsage(f"{c.label} is an op; the demo trains with a rule")
    for name in values:
        if not any(_has(c.found, name) for c in chosen):
            raise WrongUsage(f"--set {name}=…: {_keywords_of(chosen)}")
    return [_ready(c, {k: v for k, v in values.items() if _has(c.found, k)}, seed) for c in chosen]


def _has(rule: Rule[Any], name: str) -> bool:
    return name in (_OPTIONS | {*rule.hyperparams, *rule.slots}) or (
        name == "rng" and rule.seed is not None
    )


def _keywords_of(chosen: Sequence[Chosen]) -> str:
    return "; ".join(
        f"{c.label} has {', '.join(c.found.hyperparams) or 'no keywords'}" for c in chosen
    )


def _ready(chosen: Chosen, values: Mapping[str, Any], seed: int) -> Chosen:
    rule = set_all(chosen.found, values, chosen.label, chosen.file)
    if isinstance(rule.seed, Required):
        rule = rule(rng=seed)
    for name, value in rule.hyperparams.items():
        if isinstance(value, Required):
            raise WrongUsage(f"{chosen.label} has no value for {name}: --set {name}=0.1")
        if isinstance(value, Given):
            raise WrongUsage(
                f"{chosen.label} needs {name} at every step; the demo has none to give"
            )
    with _as_usage(chosen.label, chosen.file):
        checked_seed(rule, rule.seed)
        assert rule.numpy, "a rule that no optimizer can be made of says why"
    return Chosen(chosen.label, rule, chosen.file)


def set_all(rule: Any, values: Mapping[str, Any], label: str, file: str) -> Any:
    """The rule with other defaults and options."""
    options = {k: v for k, v in values.items() if k in _OPTIONS}
    with _as_usage(label, file):
        rule = rule(**{k: v for k, v in values.items() if k not in _OPTIONS})
        return rule.options(**options) if options else rule


@contextmanager
def _as_usage(label: str, file: str) -> Iterator[None]:
    """Inside, an error of gradwright is one of how the command was called."""
    try:
        yield
    except GradwrightError as error:
        raise WrongUsage(f"{label}: {text_of(error, file)}") from error
