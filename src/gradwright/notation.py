"""How formulas are written: for a terminal, and in LaTeX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Notation:
    """How formulas are written: templates, and what each part must bind at least to need no
    parentheses. ``"{0} + {1}": (5, 5, 5)`` binds like a sum itself."""

    forms: Mapping[str, tuple[str, int, tuple[int, ...]]]
    call: str
    parentheses: str
    name: Callable[[str], str]
    number: Callable[[str], str]
    gets: str


def _infix(symbol: str, binds: int, right: int | None = None) -> tuple[str, int, tuple[int, ...]]:
    return f"{{0}} {symbol} {{1}}", binds, (binds, binds + 1 if right is None else right)


_COMPARISONS = {
    "equal": "=",
    "not_equal": "≠",
    "less": "<",
    "less_equal": "≤",
    "greater": ">",
    "greater_equal": "≥",
    "bitwise_and": "and",
    "logical_and": "and",
    "bitwise_or": "or",
    "logical_or": "or",
}

TEXT = Notation(
    forms={
        **{name: _infix(sign, 1) for name, sign in _COMPARISONS.items()},
        "add": _infix("+", 5, 5),
        "subtract": _infix("−", 5),
        "multiply": ("{0}·{1}", 6, (6, 6)),
        "divide": _infix("/", 6),
        "remainder": ("{0} mod {1}", 6, (7, 7)),
        "floor_divide": ("⌊{0} / {1}⌋", 10, (6, 7)),
        "matmul": _infix("@", 6),
        "power": ("{0}^{1}", 8, (9, 8)),
        "square": ("{0}²", 8, (9,)),
        "negative": ("−{0}", 5, (6,)),
        "sqrt": ("√{0}", 7, (9,)),
        "absolute": ("|{0}|", 10, (0,)),
        "sum": ("Σ({0})", 10, (0,)),
        "global_sum": ("Σₐₗₗ({0})", 10, (0,)),
        "minimum": ("min({0}, {1})", 10, (0, 0)),
        "maximum": ("max({0}, {1})", 10, (0, 0)),
        "where": ("({1} if {0} else {2})", 10, (0, 0, 0)),
        "transpose": ("{0}ᵀ", 9, (9,)),
        "floor": ("⌊{0}⌋", 10, (0,)),
    },
    call="{name}({args})",
    parentheses="({0})",
    name=lambda name: name,
    number=lambda text: text.replace("-", "−"),
    gets="←",
)

_GREEK = ("alpha beta gamma delta eps epsilon eta theta lambda mu nu rho sigma tau phi").split()


def _latex_name(name: str) -> str:
    """``b1`` as b_1, ``mu`` as a Greek letter, ``weight_decay`` upright."""
    letters = name.rstrip("0123456789")
    digits = name[len(letters) :]
    letters = {"ε": r"\varepsilon", "eps": r"\epsilon"}.get(letters, letters)
    if letters in _GREEK:
        letters = f"\\{letters}"
    elif len(letters) > 1 and not letters.startswith("\\"):
        letters = r"\mathrm{" + letters.replace("_", r"\_") + "}"
    return f"{letters}_{{{digits}}}" if digits else letters


_LATEX_SIGNS = {"≠": r"\neq", "≤": r"\leq", "≥": r"\geq", "and": r"\wedge", "or": r"\vee"}

LATEX = Notation(
    forms={
        **{name: _infix(_LATEX_SIGNS.get(s, s), 1) for name, s in _COMPARISONS.items()},
        "add": _infix("+", 5, 5),
        "subtract": _infix("-", 5),
        "multiply": (r"{0} \, {1}", 6, (6, 6)),
        "divide": (r"\frac{{{0}}}{{{1}}}", 9, (0, 0)),
        "remainder": (r"{0} \bmod {1}", 6, (7, 7)),
        "floor_divide": (r"\left\lfloor \frac{{{0}}}{{{1}}} \right\rfloor", 10, (0, 0)),
        "matmul": (r"{0} \, {1}", 6, (6, 7)),
        "power": ("{0}^{{{1}}}", 8, (10, 0)),
        "square": ("{0}^{{2}}", 8, (10,)),
        "negative": ("-{0}", 5, (6,)),
        "sqrt": (r"\sqrt{{{0}}}", 10, (0,)),
        "absolute": (r"\left| {0} \right|", 10, (0,)),
        "sum": (r"\sum {0}", 6, (7,)),
        "global_sum": (r"\sum_{{\mathrm{{all}}}} {0}", 6, (7,)),
        "minimum": (r"\min({0}, {1})", 10, (0, 0)),
        "maximum": (r"\max({0}, {1})", 10, (0, 0)),
        "where": (r"\begin{{cases}} {1} & {0} \\ {2} & \text{{else}} \end{{cases}}", 10, (0, 0, 0)),
        "transpose": (r"{0}^{{\top}}", 9, (9,)),
        "floor": (r"\lfloor {0} \rfloor", 10, (0,)),
    },
    call=r"\mathrm{{{name}}}({args})",
    parentheses=r"\left({0}\right)",
    name=_latex_name,
    number=lambda text: text,
    gets=r"\leftarrow",
)
