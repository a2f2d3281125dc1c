"""Every public name has the signature that its stub declared before there was a library."""

import dataclasses
import inspect
import typing

import pytest

import gradwright as gw
from gradwright import rules, schedules, tf1
from gradwright.rule import Options
from gradwright.targets.numpy.optimizer import Optimizer

# Taken from the stubs, without types; `…` is a default that the stub leaves open.
FUNCTIONS = {
    "check_gradient": "(function, /, *examples, framework=None, effort='normal', seed=0)",
    "check": "(f, /, *examples, frameworks=None, effort='normal', seed=0, **options)",
    "op": "(function, /)",
    "host_op": "(*, out=None, batch='loop', pure=True, saves=False)",
    "chain": "(*rules)",
    "partition": "(rules, /)",
    "per_param": "(function, /)",
    "shared": "(initial, /)",
    "global_sum": "(x, /)",
    "record": "(name, value, /)",
    "stop_gradient": "(x, /)",
    "grad": "(function, argnums=0, **unknown)",  # JAX's other options are refused by name
    "value_and_grad": "(function, argnums=0, **unknown)",
    "vjp": "(function, *primals)",
    "jvp": "(function, primals, tangents)",
    "eager": "()",
}
METHODS = {
    gw.Op: {
        "partials": "(self, rule, /)",
        "jvp": "(self, rule, /)",
        "surrogate": "(self, function, /)",
        "layer": "(self, **options)",
        "explain": "(self)",
        "latex": "(self)",
        "source": "(self, target='numpy', /)",
    },
    gw.Rule: {
        "explain": "(self)",
        "latex": "(self)",
        "source": "(self, target='numpy', /)",
    },
    Optimizer: {
        "step": "(self, grads, **now)",
        "swapped": "(self, slot)",
        "save": "(self, path)",
        "load": "(self, path, *, strict=…)",
        "state_dict": "(self)",
        "load_state_dict": "(self, state, *, strict=…)",
    },
}
SCHEDULES = {
    "constant": "(value)",
    "linear": "(start, end, steps, *, warmup=0)",
    "cosine": "(start, steps, *, end=0.0, warmup=0)",
    "exponential": "(start, rate, *, every=1, warmup=0)",
    "piecewise": "(start, at)",
    "of": "(function, /)",
}
RULES = {
    "adam": "(w, g, m=0.0, v=0.0, *, lr=0.001, b1=0.9, b2=0.999, eps=1e-08, step=1)",
    "adamw": "(w, g, m=0.0, v=0.0, *, lr=0.001, b1=0.9, b2=0.999, eps=1e-08, weight_decay=0.01, "
    "step=1)",
    "sgd": "(w, g, *, lr=0.01)",
    "compact_sgd": "(w, g, *, lr=0.1, noise=0.01, low=-10.0, high=10.0, rng)",
    "clip": "(g, *, low=-1.0, high=1.0)",
    "clip_by_global_norm": "(g, *, max_norm=1.0)",
    "wrap": "(w, *, low=0.0, high=1.0)",
    "muon": "(w, g, m=0.0, *, lr=0.02, mu=0.95, ns_steps=5)",
    "ema": "(w, avg=…, *, decay=0.999)",  # starts at w, as in the programs
    "sgld": "(w, g, *, lr=0.1, noise=0.01, rng)",  # the stub gives it compact_sgd's bounds
}
# What is called in several ways: each must be accepted.
OVERLOADS = [
    (gw.Op.vjp, "(self, rule, /)"),
    (gw.Op.vjp, "(self, *, host)"),
    (gw.Op.__call__, "(self, x, y, *, option)"),
    (gw.Rule.__call__, "(self, *, keyword)"),
    (gw.Rule.__call__, "(self, w, g, /, *, lr)"),
    (gw.Rule.options,
     "(self, *, precision, engine, sparse, domain, accumulate, skip_nonfinite)"),
    (gw.rule, "(function, /)"),
    (gw.rule, "(*, domain, sparse)"),
]  # fmt: skip
NOT_YET = {
    "compile": "an op is compiled and cached on NumPy arrays; API.md says so, the stub is older",
}


def plain(function):
    """A signature without types."""
    signature = inspect.signature(function)
    empty = inspect.Parameter.empty
    parameters = [p.replace(annotation=empty) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


def assert_signature(function, wanted):
    signature = plain(function)
    for name, p in signature.parameters.items():
        if f"{name}=…" in wanted:
            assert p.default is not inspect.Parameter.empty
            wanted = wanted.replace(f"{name}=…", str(p.replace(annotation=p.empty)))
    assert str(signature) == wanted


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_signature(name):
    assert_signature(getattr(gw, name), FUNCTIONS[name])


@pytest.mark.parametrize(
    "owner, name", [(c, name) for c, found in METHODS.items() for name in found]
)
def test_a_method_has_its_signature(owner, name):
    assert_signature(getattr(owner, name), METHODS[owner][name])


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_has_its_signature(name):
    assert_signature(getattr(schedules, name), SCHEDULES[name])


@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_the_library_has_its_signature(name):
    assert isinstance(getattr(rules, name), gw.Rule)
    assert_signature(getattr(rules, name).__wrapped__, RULES[name])


def test_py_func_has_the_signature_of_tensorflows():
    wanted = "(func, inp, Tout, stateful=True, name=None, grad=None, shape=None)"
    assert_signature(tf1.py_func, wanted)


def namespace(signature):
    """How a stub's overload is called: positional values and keywords."""
    parameters = inspect.signature(eval(f"lambda {signature[1:-1]}: 0")).parameters.values()
    keywords = {p.name: 1 for p in parameters if p.kind is p.KEYWORD_ONLY}
    return [1] * (len(parameters) - len(keywords)), keywords


@pytest.mark.parametrize("function, wanted", OVERLOADS)
def test_each_way_of_calling_is_accepted(function, wanted):
    values, keywords = namespace(wanted)
    ways = typing.get_overloads(function) or [function]
    assert any(accepts(way, values, keywords) for way in ways)


def accepts(function, values, keywords):
    try:
        inspect.signature(function).bind(*values, **keywords)
    except TypeError:
        return False
    return True


def test_options_that_an_overload_takes_are_the_options_of_a_rule():
    _, keywords = namespace(dict(OVERLOADS)[gw.Rule.options])
    assert set(keywords) == {"domain", *(f.name for f in dataclasses.fields(Options))}


@pytest.mark.parametrize("wanted", ["(function, more, /)", "(*, domain, sparce)"])
def test_a_way_of_calling_that_is_not_there_is_seen(wanted):
    values, keywords = namespace(wanted)
    assert not any(accepts(way, values, keywords) for way in typing.get_overloads(gw.rule))


def test_the_overloads_are_typed():
    assert len(typing.get_overloads(gw.rule)) == 3


def test_properties_of_rules_and_optimizers():
    rule = rules.adam(lr=0.5)
    assert (rule.name, rule.slots) == ("adam", ("m", "v"))
    assert dict(rule.hyperparams) == {"lr": 0.5, "b1": 0.9, "b2": 0.999, "eps": 1e-8}
    assert callable(rule.__wrapped__) and callable(rule.numpy)
    for target in ("torch", "numpy", "keras", "tf1", "optax"):
        assert target in dir(gw.Rule)
    optimizer = rule.numpy([])
    assert optimizer.steps == 0 and optimizer.recorded == {} and len(optimizer.param_groups) == 1


def test_errors_are_pythons_too():
    assert issubclass(gw.TraceError, (gw.GradwrightError, TypeError))
    for error, base in (
        (gw.TraceError, TypeError),
        (gw.SignatureError, TypeError),
        (gw.StateError, ValueError),
        (gw.CheckFailure, AssertionError),
    ):
        assert issubclass(error, base) and issubclass(error, gw.GradwrightError)


def test_every_public_name_is_in_the_table_or_has_its_reason():
    classes = {"Array", "Rng", "Op", "Rule", "rules", "schedules", "tf1", "given", "rule"}
    classes |= {"Optimizer", "Precision", "Report"}  # types, for annotations
    classes |= {"GradwrightError", "TraceError", "SignatureError", "StateError", "CheckFailure"}
    assert set(gw.__all__) == {*FUNCTIONS, *classes}
    assert not set(NOT_YET) & set(gw.__all__)
    assert set(RULES) <= set(rules.__all__)
