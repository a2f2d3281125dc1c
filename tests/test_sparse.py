"""Sparse gradients: what repeats is summed; ``lazy`` leaves the rows alone that are not there."""

from functools import partial

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

pytestmark = pytest.mark.framework
WAYS = ["dense", "lazy"]


@gw.rule
def centred(w, g, m=0.0, *, lr=0.1, rng):
    """Rows depend on each other, and on noise: all of w is computed, and the rows are taken."""
    m = 0.5 * m + g + 0.1 * rng.normal()
    return w - lr * (m - np.mean(m)), m


@gw.rule
def by_size(w, g, *, lr=0.1):
    """Half the parameter's rows, which the rule knows as a Python number."""
    return w - lr * sum(g for _ in range(w.shape[0] // 2))


# A step of each framework: start, rule, keywords, gradients as (indices, rows) -> new values.
def by_torch(start, rule, keywords, gradients, coalesced=False):
    torch = pytest.importorskip("torch")
    w = torch.nn.Parameter(torch.tensor(start))
    optimizer = rule.torch([w], **keywords)
    for indices, rows in gradients:
        g = torch.sparse_coo_tensor(
            torch.tensor([indices]), torch.tensor(rows), start.shape, check_invariants=True
        )
        w.grad = g.coalesce() if coalesced else g
        optimizer.step()
    return w.detach().numpy()


def slices(indices, rows, start):
    import tensorflow as tf

    return tf.IndexedSlices(rows, indices, tf.constant(start.shape))


def by_tf1(start, rule, keywords, gradients, resource=True):
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable(start, use_resource=resource)
        rows = v1.placeholder(w.dtype.base_dtype, [None, *start.shape[1:]])
        indices = v1.placeholder(tf.int32, [None])
        train = rule.tf1(**keywords).apply_gradients([(slices(indices, rows, start), w)])
        session.run(v1.global_variables_initializer())
        for i, x in gradients:
            session.run(train, {indices: i, rows: x})
        return session.run(w)


def by_reference(*run):
    v1 = pytest.importorskip("tensorflow").compat.v1
    v1.disable_control_flow_v2()
    try:
        return by_tf1(*run, resource=False)
    finally:
        v1.enable_control_flow_v2()


def by_function(start, rule, keywords, gradients, jit=False):
    tf = pytest.importorskip("tensorflow")
    w, optimizer = tf.Variable(start), rule.tf1(**keywords)

    @tf.function(jit_compile=jit, reduce_retracing=True, autograph=False)
    def step(indices, rows):
        optimizer.apply_gradients([(slices(indices, rows, start), w)])

    for indices, rows in gradients:
        step(tf.constant(indices), tf.constant(rows))
    return w.numpy()


def by_optax(start, rule, keywords, gradients):
    jax = pytest.importorskip("jax")
    from jax.experimental.sparse import BCOO

    transformation, w = rule.optax(**keywords), jax.numpy.asarray(start)
    state = transformation.init(w)
    for indices, rows in gradients:
        g = BCOO((np.asarray(rows), np.array(indices)[:, None]), shape=start.shape)
        w, state = jax.jit(transformation.step)(g, state, w)
    return np.asarray(w)


MODES = {
    "torch": by_torch,
    "torch, coalesced": partial(by_torch, coalesced=True),
    "session": by_tf1,
    "reference variables": by_reference,
    "tf.function": by_function,
    "XLA": partial(by_function, jit=True),
    "optax": by_optax,
}
in_every_mode = pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))


def rows(*values):
    return np.array(values, np.float32)


def densely(start, indices, values):
    g = np.zeros_like(start)
    np.add.at(g, indices, values)
    return g


@in_every_mode
@pytest.mark.parametrize("way", WAYS)
def test_indices_that_repeat_are_summed(mode, way):
    rule = rules.sgd.options(sparse=way)
    w = mode(np.ones(3, np.float32), rule, {"lr": 1.0}, [([0, 0, 2], rows(1, 2, 4))])
    np.testing.assert_array_equal(w, [-2, 1, -3])


@in_every_mode
@pytest.mark.parametrize(("way", "moved"), [("dense", -0.0670), ("lazy", 0.0)])
def test_a_row_that_is_absent_moves_by_its_momentum_or_stays(mode, way, moved):
    start = np.zeros((4, 2), np.float32)
    both = [([1, 3], np.ones((2, 2), np.float32)), ([3], np.ones((1, 2), np.float32))]
    rule = rules.adam.options(sparse=way)
    first, second = (mode(start, rule, {"lr": 0.1}, both[:k]) for k in (1, 2))
    np.testing.assert_allclose((second - first)[1], moved, atol=5e-5)
    np.testing.assert_allclose((second - first)[3], -0.1, rtol=1e-5)
    np.testing.assert_array_equal(second[[0, 2]], 0)


@in_every_mode
@pytest.mark.parametrize(
    "rule", [rules.adamw(lr=0.1), centred(rng=3), by_size], ids=lambda r: r.name
)
def test_lazy_is_the_dense_step_in_the_rows_of_the_gradient(mode, rule):
    """Also where rows cannot be computed apart: sums, noise, a size that is read."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(6, 3)).astype(np.float32)
    gradients = [([4, 1, 4], rng.normal(size=(3, 3)).astype(np.float32)) for _ in range(4)]
    w = start.copy()
    optimizer = rule.numpy(w)
    for indices, values in gradients:
        before, held = w.copy(), {k: v.copy() for k, v in optimizer._parameters[0].slots.items()}
        optimizer.step(densely(start, indices, values))
        others = [0, 2, 3, 5]
        w[others] = before[others]
        for slot, old in held.items():
            optimizer._parameters[0].slots[slot][others] = old[others]
    got = mode(start, rule.options(sparse="lazy"), {}, gradients)
    np.testing.assert_array_equal(got[others], start[others])
    np.testing.assert_allclose(got, w, atol=1e-6)
    assert np.abs(got - start)[[1, 4]].min() > 0


@in_every_mode
def test_a_sparse_gradient_that_is_not_finite_is_skipped(mode):
    rule = rules.sgd.options(sparse="lazy", skip_nonfinite=True)
    gradients = [([0], rows(np.inf)), ([1], rows(1.0))]
    np.testing.assert_array_equal(mode(rows(1, 1), rule, {"lr": 1.0}, gradients), [1, 0])


# --- torch ---------------------------------------------------------------------------------------
def test_only_the_rows_are_read_in_torch():
    """The memory of a step does not grow with the table."""
    torch = pytest.importorskip("torch")
    from gradwright.targets.torch import sparse

    w = torch.nn.Parameter(torch.ones(1000, 4))
    optimizer = rules.adam.options(sparse="lazy").torch([w], lr=0.1)
    seen = []
    whole = sparse.lazy
    torch_lazy = lambda *args: seen.append(whole(*args)) or seen[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "lazy", torch_lazy)
        w.grad = torch.sparse_coo_tensor([[7, 9]], torch.ones(2, 4), w.shape, check_invariants=True)
        optimizer.step()
    assert [tuple(x.shape) for x in (seen[0].entry.w, *seen[0].entry.slots)] == [(2, 4)] * 3


def test_an_embedding_trains_and_dense_steps_go_between():
    torch = pytest.importorskip("torch")
    for way in WAYS:
        tables = [torch.nn.Embedding(5, 2, sparse=sparse) for sparse in (True, False)]
        tables[1].load_state_dict(tables[0].state_dict())
        rule = rules.momentum.options(accumulate=2, sparse=way)
        optimizers = [rule.torch(table.parameters(), lr=0.1) for table in tables]
        for _ in range(6):
            for table, optimizer in zip(tables, optimizers, strict=True):
                optimizer.zero_grad()
                table(torch.tensor([1, 1, 3])).square().sum().backward()
                optimizer.step()
        torch.testing.assert_close(*[table.weight for table in tables])
        for optimizer, table in zip(optimizers, tables, strict=True):
            table.weight.grad = torch.ones(5, 2)
            optimizer.step()
            optimizer.step()
        torch.testing.assert_close(*[table.weight for table in tables])


def test_all_axes_may_be_sparse():
    torch = pytest.importorskip("torch")
    g = torch.tensor([[0.0, 2.0], [1.0, 0.0]]).to_sparse()
    for rule in (rules.sgd, centred(rng=0)):
        w = torch.nn.Parameter(torch.ones(2, 2))
        w.grad = g
        rule.options(sparse="lazy").torch([w], lr=1.0).step()
        assert torch.equal(w == 1, g.to_dense() == 0)


# --- what cannot be ------------------------------------------------------------------------------
@gw.rule
def factored(w, g, rows=lambda w: np.zeros(w.shape[:-1], w.dtype), *, lr=0.1):
    return w - lr * g, rows + np.sum(g, -1)


@in_every_mode
def test_a_slot_of_another_shape_has_no_rows(mode):
    rule, g = factored.options(sparse="lazy"), ([1], np.ones((1, 2), np.float32))
    with pytest.raises(gw.SignatureError, match="(?s)its slot rows has the shape.*sparse=.dense"):
        mode(np.zeros((3, 2), np.float32), rule, {}, [g])


@pytest.mark.parametrize("target", ["tf1", "optax"])
def test_gradients_that_are_added_up_have_all_rows(target):
    pytest.importorskip({"tf1": "tensorflow", "optax": "optax"}[target])
    rule = rules.sgd.options(sparse="lazy", accumulate=2)
    with pytest.raises(gw.SignatureError, match="a sum of gradients has all rows"):
        getattr(rule, target)()
