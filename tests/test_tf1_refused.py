"""What `rule.tf1` refuses, and how it says so."""

import traceback
from types import SimpleNamespace

import numpy as np
import pytest
from tf1_modes import jump, tf, v1

import gradwright as gw
from gradwright import rules

pytestmark = pytest.mark.framework


def ones(w):
    return [(tf.ones(w.shape, w.dtype), w)]


REFUSED = {
    "a gradient of another shape": (
        lambda: rules.sgd.tf1().apply_gradients([(tf.ones(2), tf.Variable(tf.ones(3)))]),
        gw.StateError,
        r"the gradient of \S+ is float32\(2,\), the variable \(3,\)",
    ),
    "integers": (
        lambda: rules.sgd.tf1().apply_gradients(ones(tf.Variable([1, 2]))),
        gw.StateError,
        r"the variable \S+ is int32\(2,\)",
    ),
    "a tensor": (
        lambda: rules.sgd.tf1().apply_gradients([(tf.ones(2), tf.ones(2))]),
        gw.StateError,
        "EagerTensor is optimized",
    ),
    "no gradients": (
        lambda: rules.sgd.tf1().apply_gradients([(None, tf.Variable(1.0, name="w"))]),
        gw.StateError,
        r"no gradients for any of \['w'\]",
    ),
    "a variable twice": (
        lambda: rules.sgd.tf1().apply_gradients(2 * ones(tf.Variable(1.0, name="w"))),
        gw.StateError,
        r"a variable twice among \['w', 'w'\]",
    ),
    "an engine": (
        lambda: rules.sgd.options(engine="numpy").tf1(),
        gw.GradwrightError,
        "engine='numpy' for TensorFlow, which has its own compiler",
    ),
    "no seed": (lambda: rules.sgld.tf1(), gw.SignatureError, "has no seed"),
    "an unknown keyword": (lambda: rules.sgd.tf1(mu=0.9), gw.SignatureError, "no keyword mu"),
    "a seed for one step": (
        lambda: jump.tf1(rng=0).apply_gradients(ones(tf.Variable(1.0)), rng=1),
        gw.SignatureError,
        "rng",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_so(case):
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call()


@gw.rule
def repeated(w, g, *, lr=0.1, times=2, flag=False):
    for _ in range(times):
        w = w - lr * g
    return -w if flag else w


def test_what_the_body_reads_must_be_a_python_value():
    w = tf.Variable([0.0])
    repeated.tf1(times=3, flag=True, lr=1).apply_gradients(ones(w))
    assert float(w[0]) == 3.0
    for keywords in ({"times": tf.constant(3)}, {"flag": tf.constant(True)}):
        with pytest.raises(gw.SignatureError, match="repeated reads a value as a Python number"):
            repeated.tf1(**keywords).apply_gradients(ones(w))


def test_several_replicas_are_refused(monkeypatch):
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    two = SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: two)
    with pytest.raises(gw.GradwrightError, match="several replicas"):
        rules.sgd.tf1().apply_gradients([])


def test_autograph_leaves_us_alone():
    w, seen = tf.Variable([1.0]), []

    @gw.rule
    def watched(w, g, *, lr=0.5):
        seen.append({f.name for f in traceback.extract_stack() if f.name.startswith("tf__")})
        return w - lr * g

    optimizer = watched.tf1()

    @tf.function
    def step(g):
        optimizer.apply_gradients([(g, w)])
        return watched(w, g)

    np.testing.assert_array_equal(step(tf.ones(1)), [0.0])
    assert seen
    assert all(converted == {"tf__step"} for converted in seen)


def test_gw_eager_in_a_graph_is_refused():
    with tf.Graph().as_default(), gw.eager(), pytest.raises(gw.GradwrightError, match="no values"):
        rules.sgd.tf1().apply_gradients(ones(v1.Variable(1.0)))


def test_a_slot_from_a_ref_variable_needs_the_old_control_flow():
    with tf.Graph().as_default(), pytest.raises(gw.GradwrightError, match="a reference variable"):
        w = v1.Variable(tf.ones(2), use_resource=False)
        gw.chain(rules.sgd, rules.ema).tf1().apply_gradients(ones(w))


def test_swapped_in_a_graph_is_refused():
    optimizer = rules.momentum.tf1()
    refused = pytest.raises(gw.GradwrightError, match="swapped in a graph")
    with tf.Graph().as_default(), refused, optimizer.swapped("m"):
        pass


def test_slots_of_a_tensor_whose_shape_nobody_knows():
    with tf.Graph().as_default(), pytest.raises(gw.SignatureError, match="of unknown shape"):
        rules.momentum(v1.placeholder(tf.float32, [None]), tf.ones(1))
    with tf.Graph().as_default(), pytest.raises(gw.SignatureError, match="unknown rank"):
        rules.sgd(v1.placeholder(tf.float32), tf.ones(1))
