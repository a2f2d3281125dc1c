"""How parameters of low precision keep updates that are smaller than their digits."""

import ml_dtypes
import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

BF16 = np.dtype(ml_dtypes.bfloat16)
WAYS = ["master", "kahan", "stochastic"]


def seeded(precision):
    return {"rng": 3} if precision == "stochastic" else {}


def thousand(precision, n=1, dtype=BF16, rule=rules.sgd):
    """1 minus 1e-3, a thousand times."""
    w, g = np.ones(n, dtype), np.ones(n, dtype)
    optimizer = rule.options(precision=precision).numpy([w], lr=1e-3, **seeded(precision))
    for _ in range(1000):
        optimizer.step([g])
    return w.astype(np.float64)


@pytest.mark.parametrize("dtype", [BF16, np.dtype("float16")])
def test_a_thousand_updates_that_are_too_small(dtype):
    if dtype == BF16:
        assert thousand("nearest") == 1.0
    assert abs(thousand("master", dtype=dtype)) < 2e-5
    assert abs(thousand("kahan", dtype=dtype)) < 1e-3
    many = thousand("stochastic", 4096, dtype)
    assert abs(np.mean(many)) < 0.01
    assert np.std(many) > 0
    np.testing.assert_array_equal(many, thousand("stochastic", 4096, dtype))


@pytest.mark.parametrize("dtype", [BF16, np.dtype("float16")])
def test_a_number_is_rounded_up_as_often_as_it_is_near(dtype):
    @gw.rule
    def put(w, g):
        return g * 1.0

    wanted = np.float32([1.25, 1 + 2**-14, -3.3, 1e-3, -6e-5, 3e-7, 0.0, 2.0 - 2**-20, 4.0])
    step = put.options(precision="stochastic")
    n = 100_000
    for x in wanted:
        w = np.zeros(n, dtype)
        step.numpy([w], rng=0).step([np.full(n, x, np.float32)])
        got = w.astype(np.float64)
        below = got[got <= x].max(initial=-np.inf)
        above = got[got >= x].min(initial=np.inf)
        assert len({below, above, *got} - {np.inf, -np.inf}) <= 2  # the two neighbours, or x
        spread = np.std(got) / np.sqrt(n)
        assert abs(np.mean(got) - x) <= 5 * spread
        if x == dtype.type(x):
            assert np.all(got == x)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(special):
    w = np.full(3, special, BF16)
    rules.sgd.options(precision="stochastic").numpy([w], lr=0.0, rng=0).step([np.zeros(3, BF16)])
    np.testing.assert_array_equal(w.astype(np.float32), np.float32(3 * [special]))


@pytest.mark.parametrize("precision", WAYS)
def test_plain_numpy_does_the_same(precision):
    traced = thousand(precision, 5, rule=rules.momentum)
    with gw.eager():
        np.testing.assert_array_equal(thousand(precision, 5, rule=rules.momentum), traced)


@pytest.mark.parametrize("precision", WAYS)
def test_float32_is_left_as_it_is(precision):
    w, plain = np.ones(4, np.float32), np.ones(4, np.float32)
    optimizer = rules.adam.options(precision=precision).numpy([w], **seeded(precision))
    other = rules.adam.numpy([plain])
    for k in range(5):
        g = np.float32([1, -2, 3, k])
        optimizer.step([g])
        other.step([g])
    np.testing.assert_array_equal(w, plain)


@pytest.mark.parametrize("precision", WAYS)
def test_a_checkpoint_keeps_what_is_beside(precision, tmp_path):
    def run(resume):
        w = np.ones(6, BF16)
        rule = rules.adam.options(precision=precision)
        optimizer = rule.numpy([w], lr=1e-3, **seeded(precision))
        for k in range(10):
            if resume and k == 5:
                optimizer.save(tmp_path / "run.npz")
                optimizer = rule.numpy([w], lr=1e-3, **seeded(precision))
                optimizer.load(tmp_path / "run.npz")
            optimizer.step([np.full(6, 0.1 * k - 0.4, np.float32)])
        return w.astype(np.float32)

    np.testing.assert_array_equal(run(True), run(False))


def test_the_names_and_dtypes_of_what_is_kept():
    w = np.ones(2, BF16)
    state = rules.momentum.options(precision="master").numpy([w]).state_dict()
    slots = state["parameters"][0]["slots"]
    assert {k: v.dtype.name for k, v in slots.items()} == {"m": "float32", "w.master": "float32"}
    assert rules.momentum.options(precision="kahan").own_slots == ["m", "w.lost"]


@pytest.mark.parametrize("precision", ["nearest", *WAYS])
@pytest.mark.parametrize("dtype", [BF16, np.dtype("float16")])
def test_a_domain_holds(precision, dtype):
    rng = np.random.default_rng(0)
    w = rng.uniform(-10, 10, 1000).astype(dtype)
    w[:3] = [-10, 9.99, 0]
    rule = rules.compact_sgd.options(precision=precision)
    optimizer = rule.numpy([w], lr=1.0, noise=0.3, low=-10, high=10, rng=0)
    for _ in range(50):
        optimizer.step([rng.normal(size=1000).astype(dtype)])
        assert np.all(w.astype(float) >= -10)
        assert np.all(w.astype(float) < 10)


def test_rounding_at_random_needs_a_seed_and_is_no_draw_of_the_rule():
    with pytest.raises(gw.SignatureError, match="draws random numbers and has no seed"):
        rules.sgd.options(precision="stochastic").numpy([np.ones(2, BF16)])
    w = np.ones(1000, BF16)
    plain = np.ones(1000, np.float32)
    for x, rule in ((w, rules.sgld.options(precision="stochastic")), (plain, rules.sgld)):
        rule.numpy([x], lr=0.0, noise=1.0, rng=1).step([np.zeros(1000, x.dtype)])
    assert np.max(np.abs(w.astype(np.float32) - plain)) <= 2**-7 * np.max(np.abs(plain))


@pytest.mark.framework
@pytest.mark.parametrize("precision", ["nearest", *WAYS])
def test_torch_takes_the_same_steps(precision):
    torch = pytest.importorskip("torch")
    rule = rules.sgld.options(precision=precision)
    w = np.ones(300, BF16)
    p = torch.nn.Parameter(torch.ones(300, dtype=torch.bfloat16))
    ours = rule.numpy([w], lr=1e-3, noise=0.0, rng=3)
    theirs = rule.torch([p], lr=1e-3, noise=0.0, rng=3)
    for _ in range(20):
        ours.step([np.ones(300, BF16)])
        p.grad = torch.ones_like(p)
        theirs.step()
    np.testing.assert_array_equal(p.detach().float().numpy(), w.astype(np.float32))


@pytest.mark.framework
@pytest.mark.parametrize("precision", ["nearest", *WAYS])
@pytest.mark.parametrize("dtype", [BF16, np.dtype("float16")])
def test_tensorflow_takes_the_same_steps(precision, dtype):
    tf = pytest.importorskip("tensorflow")
    rule = rules.sgd.options(precision=precision)
    w, v = np.ones(300, dtype), tf.Variable(np.ones(300, dtype))
    ours = rule.numpy([w], lr=1e-4, **seeded(precision))
    theirs = rule.tf1(lr=1e-4, **seeded(precision))
    for _ in range(20):
        ours.step([np.ones(300, dtype)])
        theirs.apply_gradients([(tf.ones_like(v), v)])
    np.testing.assert_array_equal(v.numpy().astype(np.float32), w.astype(np.float32))


@pytest.mark.framework
@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_the_neighbour_of_a_bfloat16_is_refused(framework):
    library = pytest.importorskip(framework)
    x = (library.numpy if framework == "jax" else library).ones(
        3, dtype=getattr(library, "bfloat16", "bfloat16")
    )
    op = gw.op(lambda x: np.nextafter(x, np.float32(2)))
    with pytest.raises(gw.TraceError, match=r"np\.nextafter of bfloat16"):
        op(x)
