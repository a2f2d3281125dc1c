"""How an op is called: by position, by name, with options given and left out."""

import numpy as np
import pytest

import gradwright as gw


def ones(library):
    return pytest.importorskip(library).ones(3)


@pytest.mark.parametrize(
    "library", ["numpy", *(pytest.param(x, marks=pytest.mark.framework) for x in ["torch"])]
)
def test_an_option_that_is_left_out_has_its_default_whatever_was_given_before(library):
    @gw.op
    def scaled(x, *, mode="twice", by=1.0):
        return (2 if mode == "twice" else 3) * by * x

    x = ones(library)
    for _ in range(3):
        assert float(scaled(x, mode="thrice")[0]) == 3
        assert float(scaled(x)[0]) == 2
        assert float(scaled(x, by=5.0)[0]) == 10


@pytest.mark.parametrize(
    "library", ["numpy", *(pytest.param(x, marks=pytest.mark.framework) for x in ["torch"])]
)
def test_arguments_by_name_are_those_in_order(library):
    @gw.op
    def minus(x, y=1.0, *, by=1.0):
        return by * (x - y)

    @gw.op
    def less(x, y):
        return x - y

    x = ones(library)
    for _ in range(3):
        assert float(less(y=x, x=3 * x)[0]) == float(less(3 * x, y=x)[0]) == 2
        assert float(minus(y=x, x=3 * x)[0]) == 2
        assert float(minus(3 * x)[0]) == 2
        assert float(minus(by=2.0, x=3 * x)[0]) == 4


def test_a_call_by_name_is_as_ready_as_one_by_position():
    @gw.op
    def less(x, y):
        return x - y

    x = np.ones(3)
    less(y=x, x=x)
    assert len(less.ready) == 1
    less.ready.update(dict.fromkeys(less.ready, lambda x, y: "ready"))
    assert less(x, x) == less(y=x, x=x) == less(x, y=x) == "ready"


@pytest.mark.parametrize(
    ("args", "kwargs", "what"),
    [
        ((1.0,), {}, "missing a required argument: 'y'"),
        ((1.0, 2.0), {"y": 3.0}, "multiple values for argument 'y'"),
        ((1.0, 2.0), {"z": 3.0}, "got an unexpected keyword argument 'z'"),
        ((1.0, 2.0, 3.0), {}, "too many positional arguments"),
    ],
)
def test_a_call_that_does_not_fit_says_so(args, kwargs, what):
    @gw.op
    def less(x, y):
        return x - y

    with pytest.raises(gw.SignatureError, match=what):
        less(*args, **kwargs)
