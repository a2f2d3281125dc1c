"""Random numbers: the published vectors, and that a draw depends on what it says and no more."""

import contextlib
import itertools

import numpy as np
import pytest
from reference import random_bits as slow_bits
from scipy import stats

import gradwright as gw
from gradwright import philox, rules
from gradwright.rng import Rng

F4 = np.float32

# Random123-1.14.0, tests/kat_vectors: philox4x32 10 rounds; counter, key, result.
KNOWN_ANSWERS = [
    (
        (0x00000000, 0x00000000, 0x00000000, 0x00000000),
        (0x00000000, 0x00000000),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter, key, wanted", KNOWN_ANSWERS)
def test_the_published_vectors(counter, key, wanted):
    assert tuple(int(word) for word in philox.philox(counter, key)) == wanted


def test_the_published_vectors_through_the_layout():
    """Where the layout can say a counter and a key: the zeros, and pi in part."""
    got = philox.words(0, 4, step=0, identity=0, seed=0, draw=0)
    assert tuple(map(int, got)) == KNOWN_ANSWERS[0][2]


def test_the_layout_is_the_one_that_is_documented():
    seed, draw, step, identity = 0xAB_CDEF_0123_4567 % 2**56, 200, 2**40 + 17, 2**31 + 5
    first = 2**34 + 4 * 2**30 + 2  # blocks beyond 2**32
    block = first >> 2
    counter = (
        block & 0xFFFFFFFF,
        block >> 32 | step >> 32 << 16,
        step & 0xFFFFFFFF,
        identity,
    )
    key = seed & 0xFFFFFFFF, seed >> 32 << 8 | draw
    (wanted,) = philox.philox(counter, key)[2:3]
    assert int(philox.words(first, 1, step, identity, seed, draw)[0]) == int(wanted)


@pytest.mark.parametrize("lane", ["own", "even", "odd", "place"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (0,), (2, 3, 4)])
def test_bits_are_those_of_the_obvious_program(lane, shape):
    got = philox.random_bits(12, 3, 2**40 + 9, draw=5, lane=lane, shape=shape)
    wanted = slow_bits(12, 3, 2**40 + 9, 5, lane, shape)
    assert got.dtype == np.uint32 and got.shape == shape
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 7, 64, 1000])
def test_any_chunking_gives_the_same_words(chunk):
    size, rest = 1000, (5, 6, 7, 8)
    whole = philox.words(0, size, *rest)
    parts = [philox.words(k, min(chunk, size - k), *rest) for k in range(0, size, chunk)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_shorter_array_has_the_beginning_of_a_longer_one():
    w = [np.zeros(n, F4) for n in (3, 10)]
    for a in w:
        rules.sgld.numpy(a, rng=1).step(np.zeros_like(a))
    np.testing.assert_array_equal(w[0], w[1][:3])


def test_a_shape_does_not_matter_and_neither_does_the_order_of_memory():
    w = [np.zeros(12, F4), np.zeros((3, 4), F4), np.zeros((3, 4), F4, order="F")]
    for a in w:
        rules.sgld.numpy(a, rng=1).step(np.zeros_like(a))
    np.testing.assert_array_equal(w[0].reshape(3, 4), w[1])
    np.testing.assert_array_equal(w[1], w[2])


# --- through a rule -----------------------------------------------------------------------------
@gw.rule
def noise(w, g, *, rng):
    return rng.normal()


@gw.rule
def two(w, g, b=0.0, *, rng):
    return rng.normal(), rng.normal()


def drawn(rule=noise, size=1000, steps=1, clock=0, seed=0, dtype=F4):
    """What a rule gives a parameter that has had `clock` updates."""
    w = np.zeros(size, dtype)
    optimizer = rule.numpy(w, rng=seed)
    state = optimizer.state_dict()
    state["parameters"][0]["steps"] = clock
    optimizer.load_state_dict(state)
    for _ in range(steps):
        optimizer.step(np.zeros(size, dtype))
    return w


SPELLINGS = {
    "an int": lambda w, g, *, rng: rng.normal(size=6),
    "a tuple": lambda w, g, *, rng: rng.normal(size=(6,)),
    "w.shape": lambda w, g, *, rng: rng.normal(size=w.shape),
    "len(w)": lambda w, g, *, rng: rng.normal(size=len(w)),
    "standard_normal": lambda w, g, *, rng: rng.standard_normal(),
    "standard_normal of a size": lambda w, g, *, rng: rng.standard_normal(w.shape[0]),
}


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_draw_may_say_the_size_that_it_has(spelling, eager):
    with gw.eager() if eager else contextlib.nullcontext():
        np.testing.assert_array_equal(drawn(gw.rule(SPELLINGS[spelling]), 6), drawn(size=6))


def test_the_shape_of_w_as_a_size_needs_no_trace_of_its_own():
    rule = gw.rule(lambda w, g, *, rng: rng.normal(size=w.shape))
    optimizer = rule.numpy([np.zeros(3), np.zeros(5)], rng=0)
    optimizer.step([np.zeros(3), np.zeros(5)])
    assert len(optimizer._preset._plans) == 1


def test_rng_has_no_other_names():
    def asks(w, g, *, rng):
        return w + hasattr(rng, "normal") + 2 * hasattr(rng, "exponential")

    assert (drawn(gw.rule(asks), 3) == 1).all()


def unrelated(x, y):
    """Not equal, and not correlated beyond chance."""
    assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(len(x))
    assert np.mean(x == y) < 0.01


def test_noise_of_sigma_has_that_standard_deviation():
    w = np.zeros(100_000, F4)
    rules.sgld.numpy(w, noise=0.1, rng=0).step(np.zeros_like(w))
    assert abs(np.std(w) - 0.1) < 4 * 0.1 / np.sqrt(2 * len(w))
    assert abs(np.mean(w)) < 4 * 0.1 / np.sqrt(len(w))


def test_noise_adds_up_over_steps():
    """Ten independent draws: the variances add."""
    w = np.zeros(100_000, F4)
    optimizer = rules.sgld.numpy(w, noise=0.1, rng=0)
    for _ in range(10):
        optimizer.step(np.zeros_like(w))
    assert abs(np.std(w) - 0.1 * 10**0.5) < 0.005


def test_two_draws_in_one_rule_differ():
    w = np.zeros(1000, F4)
    optimizer = two.numpy(w, rng=0)
    optimizer.step(np.zeros(1000, F4))
    unrelated(w, optimizer.state_dict()["parameters"][0]["slots"]["b"])


def test_draws_of_the_rules_of_a_chain_differ():
    @gw.rule
    def again(w, n=0.0, *, rng):
        return w, rng.normal()

    w = np.zeros(1000, F4)
    optimizer = gw.chain(noise, again).numpy(w, rng=0)
    optimizer.step(np.zeros(1000, F4))
    unrelated(w, optimizer.state_dict()["parameters"][0]["slots"]["n"])


def test_two_parameters_of_one_shape_differ():
    w = [np.zeros(1000, F4), np.zeros(1000, F4)]
    noise.numpy(w, rng=0).step([np.zeros(1000, F4)] * 2)
    unrelated(*w)


@pytest.mark.parametrize("clock, other", [(0, 1), (2**24 - 1, 2**24), (2**32, 0), (2**47, 0)])
def test_two_steps_differ(clock, other):
    """Step 2**24 + 1 is no float32; steps beyond 32 bits do not start again."""
    unrelated(drawn(clock=clock), drawn(clock=other))


def test_the_clock_is_that_of_the_parameter():
    np.testing.assert_array_equal(drawn(clock=2**24), drawn(clock=2**24 - 1, steps=2))


@pytest.mark.parametrize("seed, other", [(0, 1), (0, 2**32), (0, 2**40), (0, 2**55), (255, 0)])
def test_two_seeds_differ(seed, other):
    unrelated(drawn(seed=seed), drawn(seed=other))


@pytest.mark.thorough
def test_a_seed_and_a_draw_do_not_mix():
    """Seed 2**32 must not be draw 1 of seed 0."""
    w = np.zeros(1000, F4)
    optimizer = two.numpy(w, rng=0)
    optimizer.step(np.zeros(1000, F4))
    second = optimizer.state_dict()["parameters"][0]["slots"]["b"]
    for seed in (2**k for k in range(32, 56)):
        assert not np.array_equal(drawn(seed=seed), second)


def test_equal_seeds_are_equal():
    np.testing.assert_array_equal(drawn(seed=9), drawn(seed=9))
    np.testing.assert_array_equal(drawn(seed=np.int64(9)), drawn(seed=9))


def test_other_parameters_do_not_change_a_parameters_noise():
    alone, first = np.zeros(100, F4), np.zeros(100, F4)
    noise.numpy([alone], rng=0).step([np.zeros(100, F4)])
    many = [first, np.zeros((3, 4), F4), np.zeros(7, F4)]
    noise.numpy(many, rng=0).step([np.zeros_like(a) for a in many])
    np.testing.assert_array_equal(first, alone)


def test_a_parameter_without_a_gradient_does_not_move_anothers_noise():
    w, alone = [np.zeros(9, F4) for _ in range(2)], [np.zeros(9, F4) for _ in range(2)]
    noise.numpy(w, rng=0).step([None, np.zeros(9, F4)])
    noise.numpy(alone, rng=0).step([np.zeros(9, F4)] * 2)
    np.testing.assert_array_equal(w[1], alone[1])


def test_the_stored_precision_does_not_matter():
    draws = [drawn(dtype=dtype) for dtype in (np.float16, np.float32, np.float64)]
    np.testing.assert_array_equal(draws[1], draws[2])
    np.testing.assert_array_equal(draws[0], draws[1].astype(np.float16))


def test_eager_draws_are_the_same():
    w, plain = np.zeros(1001, F4), np.zeros(1001, F4)
    optimizer, other = two.options(engine="numpy").numpy(w, rng=3), two.numpy(plain, rng=3)
    for _ in range(3):
        optimizer.step(np.zeros(1001, F4))
        with gw.eager():
            other.step(np.zeros(1001, F4))
    np.testing.assert_array_equal(w, plain)


# --- what rng offers ----------------------------------------------------------------------------
def integers(w):
    return np.zeros(w.shape, np.int32)


def words(w):
    return np.zeros(w.shape, np.uint32)


@gw.rule
def all_kinds(w, g, u=0.0, v=0.0, n=0.0, i=integers, j=integers, b=words, *, rng=5):
    new = {"u": rng.uniform(), "v": rng.uniform(-1, 3), "n": rng.normal(2.0, 0.5)}
    new |= {"i": rng.integers(7), "j": rng.integers(-3, 4), "b": rng.bits()}
    return rng.normal(), new


def kinds(size=100_000):
    w = np.zeros(size, F4)
    optimizer = all_kinds.numpy(w)
    optimizer.step(np.zeros(size, F4))
    return {"z": w, **optimizer.state_dict()["parameters"][0]["slots"]}


def test_uniform_integers_normal_and_bits():
    x = kinds()
    n = len(x["z"])
    assert x["u"].min() >= 0 and x["u"].max() < 1 and abs(x["u"].mean() - 0.5) < 4 / np.sqrt(12 * n)
    assert x["v"].min() >= -1 and x["v"].max() < 3 and abs(x["v"].mean() - 1) < 16 / np.sqrt(12 * n)
    assert abs(x["n"].mean() - 2) < 4 * 0.5 / np.sqrt(n) and abs(x["n"].std() - 0.5) < 0.01
    for name, low in (("i", 0), ("j", -3)):
        assert x[name].dtype == np.int32
        counts = np.bincount(x[name] - low, minlength=7)
        assert len(counts) == 7 and stats.chisquare(counts).pvalue > 1e-4
    assert x["b"].dtype == np.uint32
    for a, b in itertools.combinations(x.values(), 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(n)


def test_uniform_excludes_its_end_in_float32():
    """2**-24 is the step: (2**24 - 1)/2**24 is the largest float32 below 1."""

    class Top(Rng):
        def _bits(self, draw, lane):
            return np.full(3, 2**32 - 1, np.uint32)

    assert Top(np.zeros(3, F4), 1, 0, 0).uniform().max() == np.nextafter(F4(1), F4(0))
    assert np.isfinite(Top(np.zeros(3, F4), 1, 0, 0).normal()).all()


def test_normals_are_finite_at_every_corner_of_the_bits():
    class Corner(Rng):
        def _bits(self, draw, lane):
            words = [0, 1, 255, 256, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 3 * 2**30, 2**32 - 1]
            grid = np.array(words, np.uint32)
            return np.repeat(grid, 10) if lane == "even" else np.tile(grid, 10)

    z = Corner(np.zeros(100, F4), 1, 0, 0).normal()
    assert np.isfinite(z).all() and z.dtype == F4
    assert np.abs(z).max() == pytest.approx(np.sqrt(2 * 24 * np.log(2)), rel=1e-6)


def test_normals_are_those_of_box_and_muller():
    """Against float64; the contract allows 8 ulp or 2e-6."""
    size = 100_000
    z = drawn(size=size).astype(np.float64)
    even, odd, place = (philox.random_bits(1, 0, 0, draw=0, lane=lane, shape=(size,))
                        for lane in ("even", "odd", "place"))  # fmt: skip
    radius = np.sqrt(-2 * np.log(((even >> 8) + 1.0) / 2**24))
    wanted = radius * np.cos(2 * np.pi * ((odd >> 8) / 2**24 - place / 4))
    assert np.max(np.abs(z - wanted)) < 2e-6


# --- statistics ---------------------------------------------------------------------------------
MANY = 10_000_000


@pytest.fixture(scope="module")
def normals():
    return drawn(size=MANY, seed=20240901)


@pytest.mark.thorough
def test_moments_of_ten_million_normals(normals):
    z = normals.astype(np.float64)
    for moment, wanted, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**moment) - wanted) < 4 * np.sqrt(variance / MANY)


@pytest.mark.thorough
def test_ten_million_normals_by_kolmogorov_and_smirnov(normals):
    z = np.sort(normals.astype(np.float64))
    cdf = stats.norm.cdf(z)
    k = np.arange(MANY)
    distance = max(np.max((k + 1) / MANY - cdf), np.max(cdf - k / MANY))
    assert distance < 1.95 / np.sqrt(MANY)  # exceeded by chance once in a thousand


def test_the_tails_of_ten_million_normals(normals):
    for bound in (3, 4, 5):
        wanted = 2 * stats.norm.sf(bound) * MANY
        assert abs(np.sum(np.abs(normals) > bound) - wanted) < 5 * np.sqrt(wanted) + 1


@pytest.mark.thorough
def test_neighbours_are_not_correlated(normals):
    """Box and Muller make two of one pair: neither they nor their squares may be related."""
    z = normals.astype(np.float64)
    for x, y in ((z[0::2], z[1::2]), (z[1:-1:2], z[2::2]), (z[:-4], z[4:])):
        for power in (1, 2):
            assert abs(np.corrcoef(x**power, y**power)[0, 1]) < 5 / np.sqrt(len(x))


def test_the_bits_are_uniform():
    bits = philox.words(0, 1_000_000, 1, 0, 7, 0)
    for k in range(32):
        ones = int(np.sum(bits >> np.uint32(k) & 1))
        assert abs(ones - 500_000) < 5 * 500
    for shift in (0, 8, 16, 24):
        counts = np.bincount(bits >> np.uint32(shift) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-5


def test_steps_identities_and_draws_are_not_correlated():
    """Neighbouring counters and keys are as far apart as any others."""
    base = {"step": 1, "identity": 0, "seed": 0, "draw": 0}
    streams = [philox.words(0, 100_000, **base)]
    for name in base:
        streams += [philox.words(0, 100_000, **{**base, name: base[name] + d}) for d in (1, 2)]
    for x, y in itertools.combinations(streams, 2):
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(len(x))
        assert abs(np.mean(np.bitwise_count(x ^ y)) - 16) < 5 * np.sqrt(8 / len(x))
