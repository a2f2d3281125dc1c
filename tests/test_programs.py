"""Programs that users wrote before there was a line of the library, run as written."""

import runpy
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "programs"

# What runs whole, and what it prints (in this order).
WHOLE = {
    "q08_chain": [
        "SignatureError gw.chain: clip_by_global_norm rewrites g after w was updated",
        "SignatureError clip_by_global_norm was called with 1 positional values",
        "keywords for a preset, clip_by_global_norm(",
    ],
    "q10_inputs": [],
    "q11_slots": ["adafactor [", "lars [", "{'trust_ratio': [", "prodigy ["],
    "q12_noise_some": [],
    "q13_processing": ["TypeError "],
    "q17_inspect": ["(array([0.999, 0.999, 0.999])", "(array([0.9, 0.9, 0.9])", "[1. 1. 1.]"],
    "q19_mistakes": [
        "SignatureError: swapped rewrites g, and nothing applies it to w",
        "or (w, g) in that order, if it is an update",
        "SignatureError: uneven calls gw.global_sum 1 times for the parameter 0 and 0 times for 1",
        "SignatureError: forgets returns 2 values, expected 3: w, m, v",
        "SignatureError: forgets has no keyword lrr",
        "one of lr, m, v",
        "CheckFailure: f: the vjp of f gives 1 values for 2 arguments (x, y)",
        "SignatureError: f has its own vjp already",
        "SignatureError: f(x, y): missing a required argument: 'y'",
        "TraceError: a list of traced values where one array is expected",
    ],
}
WITH_TORCH = {
    "q02_compact": [
        "SignatureError compact_sgd draws random numbers and has no seed",
        "SignatureError compact_sgd has no keyword mu",
        "SignatureError the first argument of the rule <lambda> is x",
    ],
    "q04_root": [],
    "q05_options": ["TypeError affine(", "arrays first, options by name: mode, k"],
    "q06_integers": [],
    "q07_per_layer": [
        "layer_11.weight",
        "ValueError no pattern of the partition matches the parameter 'weight'",
    ],
    "q09_loss_lr": ["TypeError polyak: value arrives at every step, and did not"],
    "q14_ema": ["RuntimeError step inside swapped('avg')", "KeyError no slot 'ema' in adam_ema"],
    "q15_accumulate_amp": ["updates done after each call: [0, 0, 0, 0, 1, 1, 1, 1]"],
    "q03_surrogate": ["TypeError reverse(", "got an unexpected keyword argument 'strengh'"],
    "q16_checkpoint": ["StateError the state of compact_sgd for the rule adam"],
}
# What runs in part: the functions that need no more than this version has.
IN_PART = {
    "q01_mod": ["test_tf1", "test_torch", "test_gradient"],
    "q18_package": ["test_pickle", "test_huber", "test_ring", "use"],
}


def run(name, capsys, monkeypatch, folder):
    """Run a program as the main one, in a folder of its own; return what it printed."""
    monkeypatch.chdir(folder)
    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def assert_printed(out, texts):
    assert "NO ERROR" not in out
    at = 0
    for text in texts:
        assert text in out[at:], f"{text!r} is not in {out[at:]!r}"
        at = out.index(text, at) + len(text)


@pytest.mark.parametrize("name", WHOLE)
def test_a_program_runs_as_written(name, capsys, monkeypatch, tmp_path):
    assert_printed(run(name, capsys, monkeypatch, tmp_path), WHOLE[name])


@pytest.mark.framework
@pytest.mark.parametrize("name", WITH_TORCH)
def test_a_program_with_torch_runs_as_written(name, capsys, monkeypatch, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    r = np.random.default_rng(0)  # what stands in for MNIST
    x, y = r.integers(0, 256, (500, 28, 28)), r.integers(0, 10, 500)
    np.savez(tmp_path / "mnist.npz", x_train=x.astype(np.uint8), y_train=y.astype(np.uint8))
    assert_printed(run(name, capsys, monkeypatch, tmp_path), WITH_TORCH[name])


@pytest.mark.framework
@pytest.mark.parametrize("name, function", [(n, f) for n, fs in IN_PART.items() for f in fs])
def test_functions_of_a_program_run_as_written(name, function, monkeypatch):
    pytest.importorskip({"test_tf1": "tensorflow"}.get(function, "torch"))
    monkeypatch.syspath_prepend(PROGRAMS)  # an op is pickled by its import path
    module = __import__(name)
    getattr(module, function)()


@pytest.mark.framework
def test_functions_of_programs_for_optax_run_as_written(monkeypatch, tmp_path):
    jax = pytest.importorskip("jax")
    monkeypatch.syspath_prepend(PROGRAMS)
    compact, layers, loss_lr, ema, saved = map(
        __import__, "q02_compact q07_per_layer q09_loss_lr q14_ema q16_checkpoint".split()
    )
    ones = {"w": jax.numpy.ones(3)}
    compact.optax_loop(ones, jax.grad(lambda p, x, y: ((p["w"] * x - y) ** 2).sum()), [(1.0, 2.0)])
    rates = layers.optax_({f"layer_{k}": jax.numpy.ones((2, 2)) for k in (0, 11)}).hyperparams["lr"]
    assert rates["layer_11"] > 3 * rates["layer_0"]
    moved, state = loss_lr.optax_(ones, ones, jax.numpy.float32(0.3))
    np.testing.assert_allclose(moved["w"], np.full(3, -0.1), rtol=1e-6)
    assert state.recorded["lr"]["w"] == pytest.approx(0.1)
    ema.optax_eval(ones, lambda average: np.testing.assert_array_equal(average["w"], np.ones(3)))
    saved.optax_(ones, lambda tree: np.savez(tmp_path / "run.npz", *jax.tree.leaves(tree)))


@pytest.mark.framework
def test_ops_of_programs_on_jax_arrays(monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.syspath_prepend(PROGRAMS)
    q01, q05 = __import__("q01_mod"), __import__("q05_options")
    x, y = map(jax.numpy.asarray, (q01.X, q01.Y))
    gradients = jax.grad(lambda x, y: q01.mod(x, y=y).sum(), (0, 1))(x, y)
    for got, want in zip((q01.mod(x, y), *gradients), q01.WANT, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)
    d = {"a": 3.0, "b": [4.0]}
    value, gradient = jax.jit(jax.value_and_grad(lambda d: q05.affine(d, mode="fast")))(d)
    assert (value, gradient) == (24, {"a": 8, "b": [6]})


@pytest.mark.framework
def test_the_functions_of_programs_with_keras(monkeypatch, tmp_path):
    keras, tf = pytest.importorskip("keras"), pytest.importorskip("tensorflow")
    monkeypatch.syspath_prepend(PROGRAMS)
    r = np.random.default_rng(0)
    x, y = r.normal(size=(32, 4)).astype(np.float32), r.integers(0, 2, 32)

    def net(*heads):
        dense = keras.layers.Dense
        return keras.Sequential([keras.Input((4,)), dense(2, name="layer_0"), *heads])

    q02 = __import__("q02_compact")
    W, batches = tf.Variable(tf.ones((4, 1))), [(x[k : k + 8], y[k : k + 8]) for k in (0, 8, 16)]
    q02.tf2(W, lambda W, x, y: tf.reduce_sum(x @ W), batches)
    assert np.all((W.numpy() >= 0) & (W.numpy() < 20) & (W.numpy() != 1))
    model = net(keras.layers.Softmax())
    start = model.get_weights()
    q02.keras_fit(model, x, y)
    kernel, bias = model.get_weights()
    assert np.all((kernel >= 0) & (kernel < 20)) and np.any(kernel != start[0])
    assert np.any(bias != start[1])

    model = net(keras.layers.Dense(1, name="layer_11"))
    __import__("q07_per_layer").keras_(model)
    start = model.get_weights()
    model.fit(x, y, verbose=0)
    low, high = (
        np.abs(a - b).max() for a, b in zip(model.get_weights()[::2], start[::2], strict=True)
    )
    assert high > 3 * low > 0  # the rate of layer 0 is 0.9¹¹ of that of layer 11

    W = tf.Variable(np.float32([5.0, 0.5]))
    __import__("q13_processing").keras3(lambda W: tf.reduce_sum(W * W), W)
    np.testing.assert_allclose(W.numpy(), [4.9, 0.4])  # each gradient capped at 1

    q16 = __import__("q16_checkpoint")
    model.compile(q16.R.keras(lr=q16.LR, rng=1, low=-5.0, high=5.0), "mse")
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = q16.keras_(tmp_path / "model.keras")
    for m in (model, loaded):
        m.fit(x, y, shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.optimizer.steps == model.optimizer.steps == 2


def test_every_program_is_run_or_has_its_reason():
    known = {*WHOLE, *WITH_TORCH, *IN_PART}
    assert known == {path.stem for path in PROGRAMS.glob("q*.py")}
