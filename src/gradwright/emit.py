"""Print a graph as Python source for an array library, and run that source.

A target spells a primitive by NumPy's own name unless its file says otherwise.
"""

import keyword
import linecache
import math
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .dims import text as dim_text
from .errors import TraceError
from .function import Function, inlined
from .graph import WEAK, Frozen, Graph, Node
from .kinds import number_dtype, param_text
from .primitives import PRIMITIVES


@dataclass(frozen=True)
class Spelling:
    """How one array library spells the primitives: only what differs from NumPy's names.

    A form is a template: ``{0}``, ``{1}`` are arguments, ``{args}`` all of them, ``{axis}`` and
    the like the parameters of the node, ``{out}`` its dtype, ``{np}`` the library's name, and
    ``{like}`` the name of the first input, which knows the device. The form of ``"add bool"`` is
    that of `add` for arguments of that dtype (of the last one, where they differ).
    """

    name: str
    library: str
    forms: Mapping[str, str]
    dtype: Callable[[str], str]
    namespace: Callable[[], dict[str, Any]]
    constant: Callable[[np.ndarray[Any, Any]], Any]
    literal: str = "{value}"  # a number beside an array of its dtype
    scalar: str = "{dtype}({value})"  # a number on its own
    weak: str = "{value}"  # a Python number on its own
    size: str = "{0}.shape[{1}]"
    shape: str = "{shape}"
    copy: str = ""  # how an output that shares memory with an input is copied, if it can
    infix: bool = True
    frozen: str = "{name}"  # an array that the function captured
    integers: Mapping[str, str] = field(default_factory=dict)  # forms for integers and booleans
    wraps: Mapping[str, str] = field(
        default_factory=dict
    )  # undoes a wider dtype's missing overflow
    strict: Collection[str] = ()  # primitives that take no bare numbers
    unsupported: Mapping[str, str] = field(default_factory=dict)  # what it cannot compute, and why
    prepared: Callable[[Graph], Graph] = lambda graph: graph  # an equal graph that prints better
    # what calls a function that has its own rule; without it, the function's body is printed
    call: Callable[[Function], Callable[..., Any]] | None = None


class _Text(NamedTuple):
    """An expression and how tightly it binds; 10 is an atom."""

    text: str
    binds: int = 10

    def at_least(self, binds: int) -> str:
        return self.text if self.binds >= binds else f"({self.text})"


def _listed(xs: Iterable[_Text]) -> str:
    return ", ".join(x.text for x in xs)


def _signed(number: str) -> _Text:
    return _Text(number, 7 if number.startswith("-") else 10)


_INFIX = {
    "equal": ("==", 0),
    "not_equal": ("!=", 0),
    "less": ("<", 0),
    "less_equal": ("<=", 0),
    "greater": (">", 0),
    "greater_equal": (">=", 0),
    "bitwise_or": ("|", 1),
    "bitwise_xor": ("^", 2),
    "bitwise_and": ("&", 3),
    "left_shift": ("<<", 4),
    "right_shift": (">>", 4),
    "add": ("+", 5),
    "subtract": ("-", 5),
    "multiply": ("*", 6),
    "divide": ("/", 6),
    "floor_divide": ("//", 6),
    "remainder": ("%", 6),
    "matmul": ("@", 6),
    "power": ("**", 8),
}
_PREFIX = {"negative": "-", "invert": "~"}
_VIEWS = (
    "getitem reshape transpose expand_dims squeeze broadcast_to flip unbroadcast einsum"
).split()
_OVERFLOWING = ("add", "subtract", "multiply", "negative", "invert", "left_shift", "astype")
_WIDE = 64  # a longer expression gets a name and a line of its own


class _Printer:
    def __init__(self, graph: Graph, spelling: Spelling) -> None:
        self.graph = spelling.prepared(graph if spelling.call else inlined(graph))
        self.spelling = spelling
        self.names = [_identifier(name, spelling) for name in self.graph.names]
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.named: dict[int, str] = {}
        self.inline: dict[int, _Text] = {}
        live = self.graph.live()
        self.uses = Counter(a for i in live for a in self.graph.nodes[i].args)
        self.uses.update(self.graph.roots)

    # --- expressions ---
    def ref(self, i: int) -> _Text:
        n = self.graph.nodes[i]
        if n.prim == "input":
            return _Text(self.names[n["k"]])
        if n.prim == "const":
            return _signed(self.number(n["value"], n.dtype, alone=True))
        return self.inline.pop(i) if i in self.inline else _Text(self.named[i])

    def number(self, value: Any, dtype: str, alone: bool) -> str:
        if isinstance(value, Frozen):
            name = self.constant(self.spelling.constant(value.array))
            return self.spelling.frozen.format(name=name, like=self.like)
        text = repr(value)
        if dtype in ("float32", "float16"):  # the shortest text that is this number
            text = str(np.dtype(dtype).type(value))
            text = text if "." in text or not math.isfinite(value) or "e" in text else f"{text}.0"
        if dtype in WEAK:
            form = self.spelling.weak if alone else "{value}"
        else:
            form = self.spelling.scalar if alone else self.spelling.literal
        # beside float16 some libraries compute with more digits of a number than it has
        exact = repr(float(np.float16(value))) if dtype == "float16" else text
        dtype = self.spelling.dtype(dtype)
        return form.format(value=text, exact=exact, dtype=dtype, like=self.like)

    def constant(self, value: Any) -> str:
        """A name for what the program holds."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    @property
    def like(self) -> str:
        return self.names[0] if self.names else ""

    def size(self, k: int, axis: int) -> str:
        return self.spelling.size.format(self.names[k], axis)

    def arguments(self, n: Node) -> list[_Text]:
        """The arguments; a number beside an array is bare, the array gives it its dtype."""
        nodes = [self.graph.nodes[a] for a in n.args]
        beside = PRIMITIVES[n.prim].kind in ("elementwise", "compare", "integer", "select")
        mixed = beside and any(m.prim != "const" and m.dtype == nodes[-1].dtype for m in nodes)
        strict = n.prim in self.spelling.strict or self.form_for_dtype(n)
        return [
            _signed(self.number(m["value"], m.dtype, alone=False))
            if mixed and not strict and m.prim == "const" and not m.shape
            else self.ref(a)
            for a, m in zip(n.args, nodes, strict=True)
        ]

    def form_for_dtype(self, n: Node) -> str | None:
        """The target's form for arguments of this dtype, if it has one of its own."""
        dtypes = [self.graph.nodes[a].dtype for a in n.args]
        if not dtypes:
            return None
        if (own := self.spelling.forms.get(f"{n.prim} {dtypes[-1]}")) is not None:
            return own
        is_integer = number_dtype(dtypes[0]).kind in "biu"
        return self.spelling.integers.get(n.prim) if is_integer else None

    def form(self, n: Node) -> str | None:
        if n.prim == "item":  # of a call, which has no dtype
            return None
        forms = self.spelling.forms
        written = forms.get(f"{n.prim} operator") if ("operator", True) in n.params else None
        return written or self.form_for_dtype(n) or forms.get(n.prim)

    def expression(self, n: Node) -> _Text:
        text = self.spelled(n)
        if n.prim in _OVERFLOWING and n.dtype in self.spelling.wraps:
            return _Text(self.spelling.wraps[n.dtype].format(text.at_least(10)))
        return text

    def spelled(self, n: Node) -> _Text:
        if n.prim == "item":
            return _Text(f"{self.ref(n.args[0]).at_least(10)}[{n['k']}]")
        xs = self.arguments(n)
        if n.prim == "call" and self.spelling.call:
            return _Text(f"{self.constant(self.spelling.call(n['function']))}({_listed(xs)})")
        if (form := self.form(n)) is not None:
            return self.filled(form, n, xs)
        if self.spelling.infix and n.prim in _INFIX:
            symbol, binds = _INFIX[n.prim]
            tighter = binds + 1
            left = xs[0].at_least(tighter if n.prim in ("power",) or binds == 0 else binds)
            return _Text(f"{left} {symbol} {xs[1].at_least(tighter)}", binds)
        if self.spelling.infix and n.prim in _PREFIX:
            return _Text(_PREFIX[n.prim] + xs[0].at_least(7), 7)
        if n.prim == "size":
            return _Text(dim_text(n["dim"], self.size), 0)
        module = PRIMITIVES[n.prim].module
        module = self.spelling.library if module == "numpy" else module
        inside = [x.text for x in xs] + [f"{name}={p}" for name, p in self.params(n).items()]
        return _Text(f"{module}.{n.prim}({', '.join(inside)})")

    def params(self, n: Node) -> dict[str, str]:
        texts = {k: param_text(k, p, self.size) for k, p in n.params if k != "operator"}
        if n.prim == "host":
            texts["function"] = self.constant(n["function"])
        if "shape" in texts:
            inside = texts["shape"].removeprefix("(").removesuffix(")")
            texts["shape"] = self.spelling.shape.format(shape=texts["shape"], dims=inside)
        return texts

    def filled(self, form: str, n: Node, xs: list[_Text]) -> _Text:
        if form == "{0}":
            return xs[0]
        atoms = [
            x.at_least(10) if f"{{{k}}}." in form or f"{{{k}}}[" in form else x.text
            for k, x in enumerate(xs)
        ]
        text = form.format(
            *atoms,
            np=self.spelling.library,
            like=self.like,
            args=_listed(xs),
            out=self.spelling.dtype(n.dtype),
            **self.derived(n),
            **self.params(n),
        )
        return _Text(text)

    def derived(self, n: Node) -> dict[str, str]:
        """What some forms want to say of a node that is no parameter of it."""
        if n.prim == "expand_dims":
            at = ["None" if k in n["axis"] else ":" for k in range(len(n.shape))]
            return {"newaxes": ", ".join(at)}
        if n.prim == "squeeze":
            rank = len(self.graph.nodes[n.args[0]].shape)
            at = ["0" if k in n["axis"] else ":" for k in range(rank)]
            # with an ellipsis an array stays an array, also without dimensions
            return {"dropped": ", ".join([*at, *(["..."] if not n.shape else [])])}
        if n.prim in ("argmax", "argmin"):
            return {"only": str(n["axis"][0])}
        return {}

    # --- statements ---
    def statement(self, i: int) -> None:
        n = self.graph.nodes[i]
        for key in (n.prim, f"{n.prim} {n.dtype}"):
            if key in self.spelling.unsupported:
                raise self.refused(key, self.graph.lines.get(i, ""))
        expression = self.expression(n)
        once = self.uses[i] == 1 and i not in self.graph.roots
        keeps_its_place = n.prim == "random_bits" or not n.is_pure
        if once and len(expression.text) <= _WIDE and not keeps_its_place:
            self.inline[i] = expression
            return
        name = self.named[i] = f"v{len(self.named)}"
        line = self.graph.lines.get(i, "")
        self.lines.append(f"{name} = {expression.text}" + (f"  # {_short(line)}" if line else ""))

    def refused(self, key: str, line: str) -> TraceError:
        target = self.spelling.name
        return TraceError(
            f"{key} is not in the {target} target: {self.spelling.unsupported[key]}",
            f"another formula, or arrays that do not belong to {target}",
            where=line,
        )

    def body(self) -> list[str]:
        results: list[str] = []
        for i in self.graph.live():
            if self.graph.nodes[i].prim not in ("input", "const"):
                self.statement(i)
        taken: set[int] = set()
        for i in self.graph.roots:
            text, base = self.ref(i).text, self.base(i)
            shares = base in taken or self.graph.nodes[base].prim in ("input", "const")
            taken.add(base)
            results.append(
                self.spelling.copy.format(text) if shares and self.spelling.copy else text
            )
        return [*self.lines, f"return {', '.join(results)}{',' if len(results) == 1 else ''}"]

    def base(self, i: int) -> int:
        """The node whose memory node i may share."""
        n = self.graph.nodes[i]
        identity = n.prim in _VIEWS or self.form(n) == "{0}"
        return self.base(n.args[0]) if identity and len(n.args) == 1 else i


def _short(line: str) -> str:
    filename, _, number = line.rpartition(":")
    return f"{filename.rsplit('/', 1)[-1]}:{number}"


def source(graph: Graph, name: str, spelling: Spelling) -> str:
    """The graph as a Python function; it returns a tuple of the outputs, then what is recorded."""
    return _printed(graph, name, spelling)[0]


def _printed(graph: Graph, name: str, spelling: Spelling) -> tuple[str, dict[str, Any]]:
    printer = _Printer(graph, spelling)
    body = printer.body()
    head = f"def {_identifier(name, spelling)}({', '.join(printer.names)}):"
    return "\n    ".join([head, *body]) + "\n", printer.constants


def _identifier(name: str, spelling: Spelling) -> str:
    """A name of the user's that hides nothing that the program calls."""
    taken = {*_HELPERS, *spelling.namespace(), *keyword.kwlist}
    name = name if name.isidentifier() else "f"
    return f"{name}_" if name in taken else name


def broadcast_size(first: Any, *rest: Any) -> Any:
    """What sizes broadcast to, when a program runs."""
    return first if first != 1 or not rest else broadcast_size(*rest)


def slice_size(size: int, start: int | None, stop: int | None, step: int | None) -> int:
    return len(range(*slice(start, stop, step).indices(size)))


_HELPERS: dict[str, Any] = {
    "broadcast_size": broadcast_size,
    "slice_size": slice_size,
    "inf": math.inf,
    "nan": math.nan,
}


def program(graph: Graph, name: str, spelling: Spelling) -> Callable[..., Any]:
    """The graph as a callable of one target, made once for each graph."""
    made: dict[str, Callable[..., Any]] = graph.programs
    if spelling.name not in made:
        text, constants = _printed(graph, name, spelling)
        filename = f"<gradwright {spelling.name} {graph.key[:12]}>"
        scope: dict[str, Any] = {**_HELPERS, **spelling.namespace(), **constants}
        exec(compile(text, filename, "exec"), scope)
        # a traceback through generated code shows it, as long as the graph lives
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        weakref.finalize(graph, linecache.cache.pop, filename, None)
        made[spelling.name] = scope[_identifier(name, spelling)]
    return made[spelling.name]
