"""Every kind of fault, in at least three functions and in every framework where it can occur."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import faults  # noqa: E402
import gradient_faults  # noqa: E402
from gradient_faults import FAULTS, MAKERS, RIGHT, B, M, V  # noqa: E402

from gradwright.check import gradient, main  # noqa: E402

pytestmark = pytest.mark.framework


def found(function, *xs, framework="torch", effort="quick"):
    return gradient.report(function, xs, framework, effort, 0)


def cells(cases):
    """All of torch, and the first of each kind in the others: the rest is nightly."""
    for framework in MAKERS:
        for name, k, case in cases:
            late = k > 0 and framework != "torch"
            marks = [pytest.mark.slow] if late else []
            yield pytest.param(framework, name, case, id=f"{name} {k}, {framework}", marks=marks)


HERE = [(kind, k, case) for kind, some in FAULTS.items() for k, case in enumerate(some)]


@pytest.mark.parametrize("framework, kind, case", cells(HERE))
def test_a_fault_is_seen_and_named(framework, kind, case):
    forward, backward, *xs = case
    report = found(MAKERS[framework](forward, backward), *xs, framework=framework)
    assert report.faults, str(report)
    assert report.faults[0].diagnosis.kind == kind, str(report)


@pytest.mark.parametrize(
    "framework, name, case", cells([(case[0].__name__, k, case) for k, case in enumerate(RIGHT)])
)
def test_what_is_right(framework, name, case):
    forward, backward, *xs = case
    report = found(MAKERS[framework](forward, backward), *xs, framework=framework)
    assert report, str(report)


@pytest.mark.parametrize("framework", MAKERS)
def test_what_is_right_in_every_mode(framework):
    forward, backward, *xs = RIGHT[3]
    report = found(MAKERS[framework](forward, backward), *xs, framework=framework, effort="normal")
    assert report, str(report)


def test_every_kind_is_in_three_functions():
    assert all(len(cases) >= 3 for cases in FAULTS.values())


# --- ops of gradwright, in each framework --------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("framework", MAKERS)
@pytest.mark.parametrize("kind, case", [(kind, case) for kind, _, case in faults.CASES])
def test_a_fault_of_an_op_is_seen_there_too(framework, kind, case):
    pytest.importorskip(framework)
    function, rule, *xs = case
    report = main.report(faults.op_of(function, rule), xs, {}, [framework], "quick", 0)
    assert report.faults, str(report)
    assert report.faults[0].diagnosis.kind == kind, str(report)


# --- memory: what only arrays that can be written, or have strides, can have ----------------------
def function(forward, backward):
    class Made(torch.autograd.Function):
        pass

    Made.forward, Made.backward = staticmethod(forward), staticmethod(backward)
    return lambda *xs: Made.apply(*xs)


def keeping(value):
    def forward(ctx, *xs):
        ctx.save_for_backward(*xs)
        return value(*xs)

    return forward


def blind(g):
    """The memory behind g, read as if it were contiguous."""
    return torch.as_strided(g, g.shape, torch.empty(g.shape).stride())


def read(x):
    """A tensor's array, which shares its memory."""
    return x.detach().numpy()


def incremented(x):
    read(x)[...] += 1
    return x


def doubled(g):
    g *= 2
    return g


MEMORY = {
    "strides": [
        (keeping(torch.sin), lambda ctx, g: blind(g) * torch.cos(*ctx.saved_tensors), M),
        (keeping(lambda x: x**3), lambda ctx, g: 3 * g * blind(ctx.saved_tensors[0]) ** 2, M),
        (keeping(torch.matmul), lambda ctx, g: (
            blind(g) @ ctx.saved_tensors[1].mT, ctx.saved_tensors[0].mT @ g), M, np.outer(B, B)),
    ],
    "alias": [
        (lambda ctx, x: torch.from_numpy(read(x)), lambda ctx, g: g, V),
        (lambda ctx, x: torch.from_numpy(read(x).reshape(-1)), lambda ctx, g: g.reshape(3, 2), M),
        (lambda ctx, x: torch.from_numpy(read(x)[::-1][::-1]), lambda ctx, g: g, M),
    ],
    "mutation": [
        (lambda ctx, x: 2 * x, lambda ctx, g: doubled(g), V),
        (lambda ctx, x: torch.tensor(2 * read(incremented(x))), lambda ctx, g: 2 * g, V),
        (keeping(torch.sin), lambda ctx, g: g.mul_(torch.cos(*ctx.saved_tensors)), M),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", MEMORY)
@pytest.mark.parametrize("k", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_a_fault_of_memory_is_seen_and_named(kind, k):
    forward, backward, *xs = MEMORY[kind][k]
    report = found(function(forward, backward), *xs, effort="normal")
    assert kind in {c.diagnosis.kind for c in report.faults}, str(report)


def numpy_function(change):
    tf = pytest.importorskip("tensorflow")

    def run(x):
        y = 2 * x
        change(x)
        return y

    @tf.custom_gradient
    def made(x):
        y = tf.ensure_shape(tf.numpy_function(run, [x], x.dtype), x.shape)
        return y, lambda g: 2 * g

    return lambda x: made(x)


@pytest.mark.parametrize("k", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_python_on_the_host_that_writes_into_a_tensor(k):
    changes = [lambda x: x.__iadd__(1), lambda x: x.fill(0), lambda x: x.sort()]
    report = found(
        numpy_function(changes[k]), -np.sort(-V), framework="tensorflow", effort="normal"
    )
    assert "mutation" in {c.diagnosis.kind for c in report.faults}, str(report)


def test_python_on_the_host_that_is_right():
    report = found(numpy_function(lambda x: None), V, framework="tensorflow", effort="normal")
    assert "mutation" not in {c.diagnosis.kind for c in report.faults}, str(report)


def test_names_are_those_of_all_frameworks():
    texts = [set(vars(gradient_faults.torch_names())), set(vars(gradient_faults.jax_names()))]
    assert texts[0] == texts[1] == set(vars(gradient_faults.tensorflow_names()))
