"""Host ops in Keras: shapes before there are values, training, layers."""

import numpy as np
import pytest
from host_ops import row_sum, sine

import gradwright as gw

pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.framework


def test_static_shapes_before_any_run():
    x = keras.Input((3,))
    out = row_sum()(x)
    assert (out.shape, out.dtype) == ((None, 1), "float32")
    model = keras.Model(x, out)
    ones = np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(model.predict(ones, verbose=0), np.full((5, 1), 3))
    with pytest.raises(Exception, match=r"shape \(5, 2\) for one of \(5, 1\)"):
        keras.Model(x, row_sum(2)(x)).predict(ones, verbose=0)


@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("kind", ["vjp", "host"])
def test_a_model_is_trained_by_the_rule(kind, factor):
    f = sine(kind, factor)
    x = keras.Input((2,))
    dense = keras.layers.Dense(2, kernel_initializer="ones", use_bias=False)
    model = keras.Model(x, f(dense(x), 2.0))
    model.compile(keras.optimizers.SGD(0.1), lambda y, out: keras.ops.sum(out))
    data = np.float32([[0.3, 0.4]])
    model.fit(data, data, verbose=0)
    moved = 1 - 0.1 * factor * 2 * np.cos(0.7) * np.repeat(data.T, 2, 1)
    np.testing.assert_allclose(dense.kernel, moved, rtol=1e-5)


def test_a_layer():
    layer = gw.Op.layer(sine("vjp"))
    out = layer(np.float32([0.5]), np.float32([2.0]))
    np.testing.assert_allclose(out, 2 * np.sin(0.5), rtol=1e-6)
