"""What cannot be traced, differentiated or called."""

import math
import sys
import time
import types
from unittest import mock

import numpy as np
from errors.case import case

import gradwright as gw
from gradwright.function import Function, Own
from gradwright.graph import Graph
from gradwright.op import Meta

X, V, ONE = np.ones((2, 3), np.float32), np.ones(3, np.float32), np.float32(1)
I, C = np.arange(3), np.ones(3, complex)
KNOWN = np.ones(3, np.float32)  # an array in the trace, whose size is known
counter = iter(range(100))
kept = []


def on(*arrays, **options):
    """Call a function as an op."""
    return lambda f: gw.op(f)(*arrays, **options)


def without_value():
    """Call an op on a number that a framework has not computed yet."""
    op = gw.op(lambda x, n: x * len(range(n)))
    _, layout = op.signature.layout([V, 1], {})
    op.traced([Meta((3,), "float32"), Meta((), "int")], layout)


def leak(x):
    """Use a tracer of the run before."""
    kept.append(x)
    return kept[0] + x


def change(x):
    x[0] = 1
    return x


def add_in_place(x):
    x += 1
    return x


def branch(x):
    return x if x > 0 else -x


def shrink(w, g):
    return w * np.random.normal()


@gw.op
def own_vjp(x, y):
    return x * y


@own_vjp.vjp
def _(g, x, y):
    return g * y


@gw.op
def wide(x, y):
    return x + y


@wide.vjp
def _(g, x, y):
    return np.sum(g), g


@gw.op
def crossed(x, y):
    return x + y


@crossed.vjp
def _(g, x, y):
    return y, x  # of the other's shape


def soft_partials():
    @gw.op
    def soft(x):
        e = np.exp(x - np.max(x))
        return e / np.sum(e)

    @soft.partials
    def _(x, out):
        return out * (1 - out)

    soft(V)


@gw.op
def clipped(x):
    return 2 * x


@clipped.vjp
def _(g, x):
    return np.clip(g, -1, 1)


@gw.op
def tree_op(d):
    return d["a"] * d["b"]


@tree_op.vjp
def _(g, d):
    return {"a": g}


@gw.op
def pair_op(x):
    return x, 2 * x


@pair_op.jvp
def _(dx, x):
    return dx


@gw.op
def used(x):
    return x


used(V)


@gw.op
def scaled(x, *, a):
    return a * x


@scaled.partials
def _(x, *, a):
    return a


def filled(x):
    y = np.zeros(3)
    y[0] = x[0]
    return y


def attached_late():
    @used.vjp
    def _(g, x):
        return g


def attached_twice():
    @own_vjp.jvp
    def _(dx, dy, x, y):
        return dx


def attached_wrong():
    op = gw.op(lambda x, y: x)
    op.vjp(lambda x, y: x)


def attached_in_another_order():
    gw.op(lambda x: x).vjp(lambda x, g: g)


def rule_without_return():
    op = gw.op(lambda x: x**3)

    @op.vjp
    def _(g, x):
        g * 3 * x**2

    gw.grad(op)(2.0)


def op_without_return(x):
    x * 2


def hidden_branch(x):
    try:
        if x.sum() > 0:
            return x
    except Exception:
        pass
    return -x


def attached_to_host():
    gw.op(lambda x: x).vjp(host=True)


def with_own(kind, rule):
    """A Function whose own rule gives too little, which an op's cannot."""
    graph = Graph()
    graph.outputs = (graph.input("x", (3,), "float32"),)
    return getattr(Function(graph, "f", Own(kind, rule)), kind)


def of_frameworks(*names):
    """Call an op on arrays that look like other frameworks'."""
    arrays = [type("Array", (), {"__module__": f"{name}.core"})() for name in names]
    with mock.patch.dict(sys.modules, {name: types.ModuleType(name) for name in names}):
        on(*arrays)(lambda *xs: xs[0])


def method():
    class A:
        @gw.op
        def f(self, x):
            return x

    return A


def text_option(x, *, mode="linear"):
    return x if mode == "linear" else 2 * x


def number_option(x, *, k=2.0):
    return k * x


def flagged(x, *, flag=True):
    return 2 * x if flag else x


def repeated(x, *, k=2):
    return sum(x for _ in range(k))


def another_library(x):
    """What PyTorch does when its own function is called on a tracer."""
    return x.__torch_function__(math.sin, (), (x,))


def with_surrogate(function, *arrays):
    """The gradient of an op whose result has the shape of its argument, by a surrogate."""

    @gw.op
    def ste(x):
        return np.round(x)

    ste.surrogate(function)
    return gw.grad(total(ste))(*arrays)


def total(f):
    return lambda x: np.sum(f(x))


CASES = [
    case(lambda: gw.op(filled)(V), "a traced value is put into an array of NumPy",
         "np.stack or np.concatenate"),
    case(lambda: gw.grad(lambda a: scaled(3.0, a=a))(2.0),
         "the derivative of scaled with respect to its option a: the op's own partials gives none",
         "the option before *", "gw.stop_gradient(a)"),
    # what a number could answer only
    case(lambda: on(V)(branch), "the truth of an array is not known while tracing: the result of",
         "greater is traced (bool, 1 dimensions)", "np.where(condition, a, b)"),
    case(lambda: on(V)(lambda x: float(x)), "float() or a function of the math module on an array",
         "np.sqrt, not math.sqrt"),
    case(lambda: on(V)(lambda x: math.sqrt(x)), "a function of the math module", "np.sqrt"),
    case(lambda: on(V)(lambda x: f"{x:.3f}"), "an array is formatted with '.3f' while it has no",
         "gw.record(name, x) to keep its values; with gw.eager(): …"),
    case(lambda: on(V)(lambda x: int(x)), "int() of an array: x is traced", "x.astype(int)"),
    case(lambda: on(V)(lambda x: range(x)), "a traced value is no Python int", "np.take(x"),
    case(lambda: on(V)(lambda x: complex(x)), "complex numbers cannot be traced yet", "imaginary"),
    case(lambda: on(V)(lambda x: np.asarray(x)), "np.asarray, np.array or a function outside NumPy",
         "x as it is; np.stack([x, y]) to join"),
    case(lambda: on(V)(lambda x: np.array([x, x])), "np.asarray, np.array or a function outside",
         "np.stack([x, y]) to join"),
    case(lambda: on(ONE)(lambda x: len(x)), "len() of an array without dimensions", "x.size"),
    case(lambda: on(V)(lambda x: x.item()), "item() and tolist() need numbers", "x as it is"),
    case(lambda: on(V)(lambda x: 1 in x), "`in` searches an array", "np.any(x == value)"),
    case(lambda: on(V)(change), "x[…] = y changes an array in place", "np.where(condition, y, x)"),
    case(lambda: on(V)(add_in_place), "np.add writes into an array (out=, or +=",
         "x = x + y in place of x += y"),
    case(lambda: on(V)(lambda x: np.add(x, 1, dtype=float)), "np.add(dtype=…) cannot be traced",
         ".astype for dtype="),
    # what other libraries' arrays have
    case(lambda: on(V)(lambda x: x.detach()), "a traced array has no attribute detach",
         "gw.stop_gradient(x)"),
    case(lambda: on(V)(lambda x: x.numpy()), "has no attribute numpy", "x as it is: inside the"),
    case(lambda: on(V)(lambda x: x.device), "has no attribute device", "device outside the functi"),
    case(lambda: on(V)(lambda x: x.exp()), "has no attribute exp", "instead: np.exp"),
    case(lambda: on(V)(lambda x: x.unique()), "has no attribute unique", "shape, ndim, size, dt"),
    case(lambda: on(V)(another_library), "torch.sin is called on a traced array, which is no array",
         "np.sin; what is native in every framework is written in NumPy"),
    # options
    case(lambda: on(V, mode=3)(text_option), "np.equal of the text 'linear': mode is traced (int",
         "a text for an option that is compared with one"),
    case(lambda: on(V, k="two")(number_option), "number_option: k is 'two', where a number is",
         "a number, as the default k=2.0 is"),
    case(lambda: on(V, flag=0.5)(flagged), "flag is read as a bool or an int; it was given a float",
         "a bool or an int for flag", "np.where(c, a, b)"),
    case(lambda: on(V, k=0.5)(repeated), "k is read as a bool or an int; it was given a float",
         "a bool or an int for k"),
    # two runs that differ
    case(lambda: on(V)(lambda x: x + np.random.normal()), "gave two different graphs when it was",
         "a captured value used at", "draw random numbers with rng.normal()"),
    case(lambda: on(V)(lambda x: x + np.random.normal(size=3)), "gave two different graphs",
         "a captured value used at", "rng.normal()"),
    case(lambda: on(V)(lambda x: x * time.time()), "gave two different graphs when it was traced",
         "errors/trace.py:", "pass what changes (time, a counter) as an argument"),
    case(lambda: on(V)(lambda x: x * next(counter)), "gave two different graphs", "a counter"),
    case(lambda: gw.rule(shrink).numpy(V.copy()).step(V), "shrink gave two different graphs",
         "rng.normal()"),
    case(lambda: on(V)(leak), "a traced array of another function is used here",
         "an argument of the function for every array"),
    # what is no primitive
    case(lambda: on(V)(np.sort), "np.sort is no primitive", "np.max, np.min or np.take"),
    case(lambda: on(V)(lambda x: np.sort(x)), "np.sort is no primitive and no composition of them",
         "np.max, np.min or np.take (sorting is no primitive)"),
    case(lambda: on(V)(lambda x: np.nan_to_num(x)), "np.nan_to_num is no primitive",
         "np.where(np.isnan(x), 0, x)"),
    case(lambda: on(V)(lambda x: np.fft.fft(x)), "np.fft.fft is no primitive", "NumPy's arith"),
    case(lambda: on(X)(lambda x: np.linalg.inv(x)), "np.linalg.inv is no primitive",
         "an expression of @, np.einsum and np.linalg.norm"),
    case(lambda: on(X)(lambda x: np.linalg.solve(x, x)), "np.linalg.solve is no", "of @, np.e"),
    case(lambda: on(I)(lambda x: np.gcd(x, 2)), "np.gcd is no primitive"),
    case(lambda: on(V)(lambda x: np.multiply.at(x, 0, 2)), "np.multiply.at is no primitive"),
    case(lambda: on(V)(lambda x: np.sum(x, initial=1.0)), "np.sum with these arguments cannot be",
         "got an unexpected keyword argument 'initial'", "np.sum(a"),
    # values
    case(lambda: on(V)(lambda x: np.multiply([x, x], 2 * x)), "a list of traced values where one",
         "np.stack([x, y]) inside the function"),
    case(lambda: on(V)(lambda x: x + C), "complex numbers cannot be traced", "real numbers"),
    case(lambda: on(V)(lambda x: x + np.array(["a"])), "ndarray objects cannot be traced"),
    case(lambda: on(V)(lambda x: x.astype(complex)), "complex128 arrays cannot be traced"),
    case(lambda: on(V.astype(np.uint8))(lambda x: x + 300), "300 beside uint8", "that fits"),
    case(lambda: on(V)(lambda x: np.bitwise_and(x, 1)), "np.bitwise_and(float32[", "NumPy accepts"),
    case(lambda: on(V)(lambda x: x + KNOWN + np.ones(2)), "sizes [2, 3] do not broadcast",
         "arguments that NumPy accepts"),
    case(lambda: on(C)(lambda x: x), "was called with complex128", "arrays of real numbers"),
    case(lambda: on(np.array(["a"]))(lambda x: x), "was called with <U1", "real numbers"),
    case(lambda: on(object())(lambda x: x), "was called with object", "arrays of real numbers"),
    case(without_value, "reads argument 1 as a number, and its value is not known yet",
         "a Python bool or int (under jax.jit, one of its static_argnames)"),
    case(lambda: of_frameworks("jax", "tensorflow"), "called with arrays of jax and tensorflow",
         "arrays of one framework (NumPy arrays may be among them)"),
    # shapes
    case(lambda: on(V)(lambda x: np.sum(x, axis=1)), "axis 1 of an array of 1 dimensions"),
    case(lambda: on(X)(lambda x: np.sum(x, axis=(0, 0))), "axis (0, 0) of an array of 2"),
    case(lambda: on(X)(lambda x: np.reshape(x, (3, 2), order="F")), "np.reshape with order='F'",
         "np.transpose, then np.reshape"),
    case(lambda: on(V)(lambda x: (x + KNOWN).reshape(2, 2)), "[3] cannot be reshaped to (2, 2)"),
    case(lambda: on(X)(lambda x: x.transpose(0, 0)), "axes (0, 0) of an array of 2 dimensions",
         "each axis once"),
    case(lambda: on(V)(lambda x: np.squeeze(x + KNOWN, 0)), "axis 0 of size 3 squeezed"),
    case(lambda: on(V)(lambda x: np.where(x > 0)), "np.where(condition) gives indices",
         "np.where(condition, a, b)"),
    case(lambda: on(V)(lambda x: np.linalg.norm(x, ord=3)), "np.linalg.norm with ord=3", "np.sum"),
    case(lambda: on(V, ONE)(lambda x, y: x @ y), "@ of an array without dimensions", "a * b"),
    case(lambda: on(V)(lambda x: (x + KNOWN) @ np.ones(2)), "@ of shapes [1, 3] and [2, 1]"),
    case(lambda: on(V)(lambda x: np.einsum("i,j", x)), "'i,j' for 1 arrays", "one term for each"),
    case(lambda: on(V)(lambda x: np.einsum("ij->i", x)), "'ij->i' for arrays of [1] dimensions"),
    # indices
    case(lambda: on(X, I)(lambda x, i: x[i, i]), "x[i, j] with two arrays of indices", "np.take"),
    case(lambda: on(V)(lambda x: x[x > 0]), "x[mask]: the size of the result", "np.where(mask, x"),
    case(lambda: on(V)(lambda x: x[0, 0]), "2 indices for an array of 1 dimensions"),
    case(lambda: on(V)(lambda x: (x + KNOWN)[5]), "index 5 of an axis of size 3"),
    case(lambda: on(V)(lambda x: x[-2 : x.shape[0]]), "a negative bound beside a size"),
    case(lambda: on(V, V)(lambda x, i: np.take(x, i)), "float32 indices", "indices.astype(int)"),
    case(lambda: on(ONE, I)(lambda x, i: np.take(x, i, 0)), "np.take of an array without dim"),
    case(lambda: on(V[:0])(lambda x: np.max(x)), "zero-size array to reduction operation maximum",
         "arrays that are not empty"),
    case(lambda: on(V[:0])(lambda x: np.argmax(x)), "argmax of an empty", "that are not empty"),
    # calls and declarations
    case(lambda: gw.op(3), "3 is no function", "a function of arrays, in NumPy"),
    case(lambda: gw.jvp(3, (V,), (V,)), "3 is no function", "a function of arrays, in NumPy"),
    case(lambda: gw.value_and_grad(total(np.square))(np.matrix(X)),
         "was called with a np.matrix, whose *, ** and sums are not those of arrays",
         "np.asarray(x)"),
    case(lambda: on(V)(lambda x: gw.rules.sgd(x, x)), "the rule sgd is called on traced arrays: in",
         "gw.chain of rules"),
    case(lambda: own_vjp(V), "own_vjp(x, y): missing a required argument: 'y'", "arrays first"),
    case(lambda: gw.op(lambda x, *, k=1: x)(V, 2), "too many positional", "options by name: k"),
    case(lambda: gw.op(lambda x, **rest: x), "the op <lambda> takes **rest", "every option by its"),
    case(method, "the op f is a method: its first argument is self", "outside the class"),
    case(attached_late, "used was used before its vjp was attached", "the rule directly below"),
    case(attached_twice, "own_vjp has its own vjp already", "one of partials, vjp, jvp, surrogate"),
    case(attached_wrong, "the vjp of <lambda> takes (x, y)", "(g, x, y[, out])"),
    case(attached_in_another_order, "the vjp of <lambda> takes (x, g): x stands where g is given",
         "(g, x), in this order"),
    case(rule_without_return, "the vjp of <lambda> returns None", "return … in it"),
    case(lambda: on(V)(op_without_return), "op_without_return returns None", "return an array"),
    case(lambda: on(V)(lambda x: ()), "<lambda> returns no arrays", "return an array, or a tree"),
    case(lambda: on(V)(hidden_branch), "the truth of an array is not known while tracing",
         "np.where(condition, a, b)"),
    case(attached_to_host, "vjp(host=True) of <lambda>: only a host op", "a rule in NumPy"),
    case(lambda: own_vjp.source("cobol"), "no target 'cobol'", "torch, tensorflow, jax, fused"),
    case(lambda: own_vjp.options(engine="gpu"), "engine='gpu' is not in this version",
         "engine='auto' or 'numpy' or 'fused'"),
    case(lambda: gw.op(lambda x: x + 1).options(engine="fused")(np.ma.array(X)),
         '<lambda> with engine="fused": an array of the class MaskedArray', 'engine="auto"'),
    case(lambda: gw.op(lambda x: [x * k for k in range(x.shape[0])][0]).source(),
         "needs the size of axis 0 of argument 0 as a Python int", "np.zeros_like, np.ones_like"),
    # derivatives
    case(lambda: gw.grad(total(lambda x: own_vjp(x, x)))(V),
         "the vjp of own_vjp gives 1 values for 2 arguments (x, y)", "one value for each array"),
    case(lambda: gw.grad(lambda x, y: np.sum(wide(x, y)))(V, V),
         "the vjp of wide gives an array of shape () for the argument x of shape", "one cotangent"),
    case(lambda: gw.grad(lambda x, y: np.sum(crossed(x, y)))(V, V[:1]),
         f"a derivative has shape (1,) where its argument has ({V.size},)", "one cotangent of the"),
    case(lambda: gw.op(lambda p: p["W"] * 2).explain(), "takes no plain vectors or matrices",
         "on arrays of yours, then this"),
    case(lambda: on(V, V[:2])(lambda x, y: x + y), "operands could not be broadcast together",
         "arrays whose sizes fit together"),
    case(soft_partials, "partials of soft, which is not elementwise: its max makes a result",
         "@….vjp with (g, …) -> one cotangent"),
    case(lambda: gw.jvp(clipped, (V,), (V,)), "forward mode of clipped: its vjp is not linear",
         "forward mode only with a linear rule"),
    case(lambda: gw.grad(lambda d: np.sum(tree_op(d)))({"a": V, "b": V}),
         "the vjp of tree_op gives a dict with keys ['a'] where a dict with keys ['a', 'b']",
         "a value of the same structure"),
    case(lambda: gw.jvp(pair_op, (V,), (V,)), "the jvp of pair_op gives one array where a tuple"),
    case(lambda: with_own("vjp", lambda cts, xs, outs: []), "the vjp of f gives 0 values for 1",
         "one value for each array argument"),
    case(lambda: with_own("jvp", lambda ts, xs, outs: []), "the jvp of f gives 0 values for 1 out",
         "one tangent for each output"),
    case(lambda: gw.grad(total(lambda x: np.nextafter(x, 1)))(V),
         "the derivative of nextafter with respect to its argument 0 is not known",
         "an op of your own with .partials, or gw.stop_gradient(x)"),
    case(lambda: gw.grad(total(lambda x: np.einsum("ii->i", x)))(X[:, :2]),
         "the derivative of np.einsum with 'ii', which takes a diagonal"),
    case(lambda: gw.grad(np.sin, 3)(V), "argnums=3 of sin, which was called with 1 arguments"),
    case(lambda: gw.grad(np.sin, "x")(V), "argnums='x' of sin, which was called with 1 arguments"),
    case(lambda: gw.grad(total(np.sin))(I), "by an argument of integers", "x.astype(np.float32)"),
    case(lambda: gw.grad(np.sin)(V), "the gradient of sin, whose value is float32 with 1 dim",
         "np.sum or np.mean of it"),
    case(lambda: gw.grad(total(np.sin), has_aux=True), "gw.grad has no option has_aux", "argnums;"),
    case(lambda: gw.value_and_grad(np.sin, has_aux=True), "gw.value_and_grad has no option"),
    case(lambda: gw.vjp(np.sin, V)[1](np.ones(4)),
         "cotangents of sin have shape (4,) where its outputs have (3,)", "the shapes of the outp"),
    case(lambda: gw.vjp(np.sin, V)[1](X), "cotangents of sin have shape (2, 3) where its outputs"),
    case(lambda: gw.vjp(np.sin, V)[1]("g"), "the vjp of sin was called with str", "real numbers"),
    case(lambda: gw.jvp(np.sin, (V,), (np.ones(4),)),
         "tangents of sin have shape (4,) where its primals have (3,)", "the shapes of the pri"),
    case(lambda: gw.jvp(np.sin, (V,), ("t",)), "the jvp of sin was called with str"),
    case(lambda: gw.jvp(np.sin, V, V), "gw.jvp of sin with arrays in the place of tuples",
         "gw.jvp(f, (x,), (dx,))"),
    case(lambda: with_surrogate(lambda x: np.sum(x), V),
         "the surrogate of ste gives an array of shape () where ste gives (?,)",
         "a surrogate whose result has the shape of the op's"),
    case(lambda: with_surrogate(lambda x: x[1:], V),
         "the surrogate of ste gives an array of shape (2,) where ste gives (3,)"),
    case(lambda: gw.jvp(np.sign, (I,), (I,)), "a tangent of integers", "None for arguments"),
    case(lambda: gw.jvp(np.sin, (V,), (V, V)), "the tangents have a tuple of 2 where a tuple of 1"),
    case(lambda: gw.jvp(lambda d: d[1], ([None, V],), ([V, V],)),
         "the tangents have an array where there is nothing (None)", "tangents like the primals"),
]  # fmt: skip
