"""Update rules, their optimizers and their files that cannot be."""

import json
import pickle
import sys
from unittest import mock

import numpy as np
from errors.case import case

import gradwright as gw
from gradwright import optimizer, precision, rules
from gradwright.op import Meta
from gradwright.optimizer import Entry
from gradwright.targets.numpy import checkpoint
from gradwright.targets.numpy.optimizer import RUNNER

F4 = np.float32
V, M = np.ones(3, F4), np.ones((2, 3), F4)


def made(rule, w=None, **keywords):
    return rule.numpy(np.ones(3, F4) if w is None else w, **keywords)


def stepped(function, w=None, **keywords):
    """One step of a function as a rule."""
    w = np.ones(3, F4) if w is None else w
    made(gw.rule(function), w, **keywords).step(w)


def too_few(w, g, m=0.0, v=0.0):
    return w - g, m


def lazy(w, g, m=None):
    return w, m


def forgets(w, g, m=0.0):
    np.add(w, m)


def only_w(w, g, m=0.0):
    return w - g


def before_the_star(w, g, lr=0.1):
    return w - lr * g


def a_pair(w, g):
    return w, g


def misspelt():
    optimizer = made(rules.sgd)
    optimizer.param_groups[0]["lrr"] = 1
    optimizer.step(V)


def without(framework):
    """Bind a rule where a framework is not installed."""
    at = f"gradwright.targets.{framework}"
    with mock.patch.dict(sys.modules, {framework: None}):
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{at}.")]:
            del sys.modules[name]
        _ = getattr(rules.sgd(), {"tensorflow": "tf1", "jax": "optax"}.get(framework, framework))


def without_bfloat16():
    with mock.patch.dict(sys.modules, {"ml_dtypes": None}):
        checkpoint.narrow_dtype()


def widened_neighbour():
    traced = gw.op(lambda x: np.nextafter(x, 1.0))
    precision.check_widened(traced.example().function.primal)


def unknown(w, g, m=0.0):
    return w - g, {"n": m}


def wants(w, g, *, lr, value=gw.given):
    return w - lr * value * g


def uneven(w, g):
    return w - gw.global_sum(g) if w.ndim == 1 else w


def shared_array(w, g, d=gw.shared(1.0)):
    return w - g, {"d": d * np.sum(g)}


def shared_rate(w, g, d=gw.shared(1.0), *, lr=0.1):
    return w - g, {"d": d * lr}


def draws(w, g, *, rng=0):
    for _ in range(257):
        w = w + rng.bits()
    return w


def noisy(w, g, *, rng):
    return w + rng.normal()


def unseeded(w, g, *, rng=None):
    return w + rng.normal()


def reads_size(w, g):
    return w - g * len(range(w.shape[0]))


def of_unknown_size():
    """A step in a compiled graph, where a size is not known."""
    rule = gw.rule(reads_size)
    rule.part("w", (V, V), {}, [], 0, 1, 0, lambda a: Meta((None,), "float32"))


def read_only():
    w = np.ones(3, F4)
    w.flags.writeable = False
    return w


def swapped(folder, action):
    """Do something while an average stands in the parameters' place."""
    optimizer = made(gw.chain(rules.sgd, rules.ema))
    optimizer.save(folder / "a.npz")
    with optimizer.swapped("avg"):
        action(optimizer, folder / "a.npz")


def swap_scalar():
    rule = gw.rule(lambda w, g, s=lambda w: np.zeros((), F4): (w, s))
    with made(rule).swapped("s"):
        pass


def swap_nothing():
    with made(rules.sgd).swapped("avg"):
        pass


def changed(change):
    """Load a state after a change to it."""
    optimizer = made(rules.momentum)
    state = optimizer.state_dict()
    change(state)
    optimizer.load_state_dict(state)


def entry(state):
    return state["parameters"][0]


def other_format(folder):
    optimizer = made(rules.sgd)
    optimizer.save(folder / "a.npz")
    with np.load(folder / "a.npz") as file:
        arrays = dict(file)
    arrays["state"] = np.array(json.dumps({**json.loads(str(arrays["state"])), "format": 2}))
    np.savez(folder / "a.npz", **arrays)
    optimizer.load(folder / "a.npz")


def no_optimizer(folder):
    np.savez(folder / "a.npz", x=V)
    made(rules.sgd).load(folder / "a.npz")


def added():
    w = np.ones(6, F4)
    optimizer = made(rules.sgd, [{"params": w[:4]}])
    optimizer.add_param_group({"params": w[3:]})


LIMITED = gw.partition({"a": rules.sgd})


def rows_of_a_slot(w, g, s=lambda w: np.zeros(2, F4)):
    return w - g, s


def lazily(rule):
    """What every target asks before it updates rows."""
    e = Entry(rule.options(sparse="lazy"), "w", V, V, [np.zeros(2, F4)], 0, 0, {}, {})
    optimizer.is_by_element(e, 0, None, {}, RUNNER)


CASES = [
    case(lambda: lazily(gw.rule(rows_of_a_slot)), 'rows_of_a_slot with sparse="lazy" leaves rows',
         "its slot s has the shape (2,)", 'slots of the shape of w, or sparse="dense"'),
    case(lambda: optimizer.check_sums(rules.sgd.options(accumulate=2, sparse="lazy")),
         'sgd with accumulate=2 and sparse="lazy": a sum of gradients has all rows',
         "accumulate=1"),
    # declarations
    case(lambda: gw.rule(3), "a rule of 3, which is no function", "def rule(w, g, …)"),
    case(lambda: gw.per_param({"a": 1.0}), "gw.per_param of {'a': 1.0}, which is no function",
         "gw.per_param(lambda name, w: …)"),
    case(lambda: gw.rule(lambda: 1), "the rule <lambda> takes no arrays", "def rule(w, g, …)"),
    case(lambda: gw.rule(lambda w, *gs: w), "the rule <lambda> takes *gs", "by its name"),
    case(lambda: gw.rule(lambda w, **more: w), "the rule <lambda> takes **more", "by its name"),
    case(lambda: gw.rule(lambda x, g: x), "the first argument of the rule <lambda> is x",
         "w, the parameter, or g, its gradient"),
    case(lambda: gw.rule(lambda w, g, m: w), "the slot m of the rule <lambda> has no initial value",
         "m=0.0, or m=lambda w: w"),
    case(lambda: gw.rule(lazy), "the slot m of the rule lazy starts at None", "m=lambda w: w"),
    case(lambda: gw.rule(lambda w, g, m="0": w), "the slot m of the rule <lambda> starts at '0'"),
    case(lambda: rules.momentum(m=[0]), "the slot m of the rule momentum starts at [0]"),
    case(lambda: gw.rule(lambda w, g, rng: w), "the rule <lambda> takes rng before *", "rng after"),
    case(lambda: gw.rule(lambda w, g, step=1: w), "takes step before *, where", "step after *"),
    case(lambda: gw.rule(lambda w, g, *, step=0.1: w), "starts at step=0.1, which is no count",
         "another name for a step size (lr): step counts updates"),
    case(lambda: gw.rule(lambda w, g, *, step=True: w), "starts at step=True"),
    case(lambda: gw.rule(lambda w, g, *, step=-1: w), "starts at step=-1"),
    case(lambda: gw.rule(lambda w, g, *, step=None: w), "starts at step=None"),
    case(lambda: gw.rule(domain="[1, 0)")(wants), "domain='[1, 0)' has nothing between its bounds",
         "low < high"),
    case(lambda: gw.rule(domain="(1, 1)")(wants), "domain='(1, 1)' has nothing between"),
    case(lambda: gw.rule(domain="0 to 1")(wants), "domain='0 to 1'", "[0, bound)"),
    case(lambda: gw.rule(domain="[0, top)")(wants), "the bound 'top' of a domain is no hyper",
         "one of lr, value, or a number"),
    case(lambda: rules.sgd.options(speed=9), "no option speed", "one of accumulate, domain"),
    case(lambda: rules.sgd.options(precision="exact"), "precision='exact' is not in this version",
         "precision='nearest'"),
    case(lambda: rules.sgd.options(engine="fused").numpy(np.ones((), F4)).step(np.ones((), F4)),
         'sgd with engine="fused" cannot update w: its update is not one loop over the elements',
         'engine="auto", which lets the array library do'),
    case(lambda: made(rules.wrap, low=1.0, high=0.0).step(V),
         "wrap: the domain [low, high) is empty, with low=1.0 and high=0.0", "low < high"),
    case(lambda: pickle.dumps(gw.rule(lambda w, g: w)),
         "the rule <lambda> is pickled by the import path of its function", "def at the top level"),
    case(widened_neighbour, "np.nextafter of bfloat16, which is computed in float32", "float32"),
    case(without_bfloat16, "bfloat16 as a NumPy array needs ml_dtypes", "pip install ml_dtypes"),
    case(lambda: rules.sgd.options(accumulate=0), "accumulate=0", "a number of steps"),
    case(lambda: gw.schedules.parse("open(1)"), "'open(1)' is no schedule", "plain numbers"),
    case(lambda: gw.schedules.linear(1.0, 0.0, 0), "a schedule over 0 steps", "at least one"),
    case(lambda: gw.schedules.exponential(1.0, 0.5, every=0), "a schedule over 0 steps"),
    case(lambda: gw.schedules.cosine("a", 3), "schedules.cosine: start is 'a', where a number is",
         "a number for start"),
    case(lambda: gw.schedules.cosine(0.1, "3"), "schedules.cosine: steps is '3', where a number"),
    case(lambda: gw.schedules.linear(1.0, None, 3), "schedules.linear: end is None, where a"),
    case(lambda: gw.schedules.exponential(1.0, "a"), "schedules.exponential: rate is 'a', where"),
    case(lambda: gw.schedules.constant([1]), "schedules.constant: value is [1], where a number"),
    case(lambda: gw.schedules.piecewise(1.0, [3]), "schedules.piecewise: at is [3], where a dict",
         "{count: value, …}"),
    case(lambda: gw.schedules.piecewise(1.0, {3: "a"}), "piecewise: at[3] is 'a', where a number"),
    case(lambda: gw.schedules.piecewise(1.0, {"3": 0.1}), "the count '3' is '3', where a number"),
    case(lambda: gw.schedules.parse("cosine(0.5)"), "cosine(0.5): missing a required argument: 's",
         "cosine(start, steps, *, end=0.0, warmup=0)"),
    case(lambda: gw.schedules.of(3), "schedules.of(3): that is no function", "constant(number)"),
    case(lambda: gw.chain(), "gw.chain: no rules", "gradient rules first"),
    case(lambda: gw.chain(rules.sgd, rules.clip), "gw.chain: clip rewrites g after w was updated",
         "gradient rules first, then the update, then projections"),
    case(lambda: gw.chain(rules.sgd, 3), "gw.chain of 3", "rules; a partition of chains"),
    case(lambda: gw.chain(rules.sgd.options(accumulate=2), rules.wrap.options(accumulate=3)),
         "gw.chain of several rules with options of their own", "gw.chain(…).options(…)"),
    case(lambda: gw.partition({"*": 3}), "gw.partition of 3 for '*'", "a rule for each pattern"),
    case(lambda: gw.partition({}), "gw.partition of no rules"),
    case(lambda: gw.partition({"a": rules.sgd.options(accumulate=2), "*": rules.sgd}),
         "gw.partition of rules with different options", ".options(…)"),
    case(lambda: without("torch"), "torch is not installed", "pip install 'gradwright[torch]'"),
    case(lambda: without("jax"), "jax is not installed", "pip install 'gradwright[jax]'"),
    case(lambda: without("tensorflow"), "tensorflow is not installed",
         "pip install 'gradwright[tensorflow]'"),
    # making an optimizer
    case(lambda: made(rules.sgd, lr="abc"), "sgd: lr is 'abc', where a number is expected",
         "a number, gw.schedules.of(f) for a function of the count, or gw.per_param(f)"),
    case(lambda: rules.sgd(lr=None), "sgd: lr is None, where a number is expected"),
    case(lambda: rules.adam(b1=[0.9]), "adam: b1 is [0.9], where a number is expected"),
    case(lambda: made(rules.sgd, lr=lambda k: 0.1), "sgd: lr is <function", "gw.schedules.of(f)"),
    case(lambda: made(rules.sgd, [{"params": V.copy(), "lr": np.sqrt}]), "sgd: lr is <ufunc"),
    case(lambda: rules.clip.numpy(V), "clip rewrites g, and nothing applies it to w",
         "gw.chain(clip, gw.rules.sgd); or (w, g) in that order", where=False),
    case(lambda: made(gw.rule(lambda g, w: w)), "<lambda> rewrites g, and nothing applies it to w"),
    case(lambda: made(rules.sgd, lrr=1), "sgd has no keyword lrr", "one of lr"),
    case(lambda: made(rules.sgld), "sgld draws random numbers and has no seed", "rng=0"),
    case(lambda: made(gw.rule(noisy), rng=None), "noisy draws random numbers and has no seed"),
    case(lambda: made(gw.rule(unseeded)), "unseeded draws random numbers and has no seed", "rng=0"),
    case(lambda: gw.rule(noisy)(V, V, rng=None), "noisy draws random numbers and has no seed"),
    case(lambda: made(rules.sgd.options(precision="stochastic"), rng=None),
         "sgd draws random numbers and has no seed", "rng=0"),
    case(lambda: made(rules.sgld, rng=-1), "rng=-1", "an integer seed from 0 to"),
    case(lambda: made(rules.sgld, rng=2**56), "rng=72057594037927936", "an integer seed"),
    case(lambda: made(LIMITED, {"b": V}), "no pattern of the partition matches the parameter 'b'",
         'a last pattern "*"'),
    case(lambda: made(rules.sgd, [1.0]), "the parameter 0 is a float", "a NumPy array of floats"),
    case(lambda: made(rules.sgd, np.ma.ones(3)), "the parameter w is a MaskedArray"),
    case(lambda: made(rules.sgd, np.arange(3)), "the parameter w is int64", "float32 or float64"),
    case(lambda: made(rules.sgd, read_only()), "the parameter w is read-only", "a copy"),
    case(lambda: made(rules.sgd, np.lib.stride_tricks.as_strided(np.ones(1), (3,), (0,))),
         "the parameter w is a view whose elements share memory", "np.array(w)"),
    case(added, "the parameters w and 1.w share memory: it would be updated twice", "or copies"),
    case(lambda: made(rules.sgd, {"a": {"b": V}, "a.b": V}), "two parameters have the name a.b"),
    case(lambda: made(rules.muon).step(V), "muon is for matrices, not for 1 dimensions",
         "gw.partition", where=False),
    case(lambda: made(rules.sgld(rng=0)).add_param_group({"params": M, "rng": 1}),
         "sgld: rng is one for all groups", "rng=… when the optimizer is made"),
    # a step
    case(lambda: stepped(wants), "wants has no value for lr", "lr=… when the optimizer is made"),
    case(lambda: stepped(wants, lr=1.0), "wants: value arrives at every step, and did not",
         "optimizer.step(…, value=…)"),
    case(lambda: made(rules.sgd).step(V, lr="x"), "sgd: lr is 'x', where a number is expected"),
    case(lambda: made(rules.sgd, lr=gw.schedules.of(lambda k: "x")).step(V),
         "sgd: lr is 'x', from the schedule of(<lambda>), where a number"),
    case(lambda: made(rules.sgd, lr=gw.per_param(lambda name, w: None)).step(V),
         "sgd: lr is None, from gw.per_param for w, where a number"),
    case(misspelt, "sgd has no keyword lrr", "one of lr"),
    case(lambda: made(rules.momentum).step(V, m=1.0), "momentum: m starts when the optimizer is",
         "m=… when the optimizer is made"),
    case(lambda: made(rules.sgd).step([V]), "the gradient of w is a list", "a NumPy array, or"),
    case(lambda: made(rules.sgd).step({"w": V}), "grads has a dict where one array is expected",
         "the structure of params, None for no gradient"),
    case(lambda: made(rules.sgd, [M.copy(), V.copy()]).step([M]), "grads has a list of 1 where a"),
    case(lambda: made(rules.sgd, {"a": V.copy(), "b": None}).step({"a": V, "b": V}),
         "grads has an array where there is nothing (None)"),
    case(lambda: made(rules.sgd, [{"params": V.copy()}]).step(V), "grads has no list of 1, one"),
    case(lambda: made(rules.sgd).step(M), "the gradient of w has shape (2, 3), the parameter (3,)"),
    case(lambda: made(rules.sgd).step(np.arange(3)), "the gradient of w is int64", "a float array"),
    case(lambda: stepped(forgets), "forgets returns None", "return w, m"),
    case(lambda: stepped(only_w), "only_w returns 1 value, expected 2: w, m", "return w, m, or w"),
    case(lambda: stepped(before_the_star), "before_the_star returns 1 value, expected 2: w, lr",
         "hyperparameters after *: def before_the_star(w, g, *, lr=0.1)"),
    case(lambda: stepped(a_pair), "a_pair returns 2 values, expected 1: w", "return w; a slot is"),
    case(lambda: stepped(too_few), "too_few returns 2 values, expected 3: w, m, v",
         "return w, m, v, or w and a dict of the slots that change"),
    case(lambda: stepped(unknown), "unknown returns a value for n, which is no slot of it",
         "its slots: m"),
    case(lambda: stepped(lambda w, g: w[None]), "gives w 2 dimensions (1, ?), it has 1 (?)",
         "a value of the same shape"),
    case(lambda: stepped(lambda w, g, m=0.0: (w, w[None])), "gives m 2 dimensions (1, ?), it has"),
    case(lambda: stepped(lambda w, g: np.mean(w, axis=0), M.copy()),
         "gives w 1 dimensions (?), it has 2 (?, ?)", "a value of the same shape"),
    case(lambda: stepped(lambda w, g: np.linalg.norm(w)), "gives w 0 dimensions (), it has 1 (?)"),
    case(lambda: stepped(lambda w, g: w[:2]), "gives w of w the shape (2,), it is (3,)"),
    case(lambda: stepped(lambda w, g, n=lambda w: np.arange(3): (w, n + 0.5)),
         "gives n a float64 value, it is int64", ".astype(np.int64)"),
    case(lambda: stepped(uneven, [V.copy(), M.copy()]),
         "uneven calls gw.global_sum 1 times for the parameter 0 and 0 times for 1",
         "outside the if, for every parameter"),
    case(lambda: stepped(shared_array), "shared_array gives a shared slot",
         "a value that differs by parameter", "gw.global_sum(x)"),
    case(lambda: stepped(shared_rate, [V.copy(), M.copy()],
                         lr=gw.per_param(lambda name, w: w.ndim)),
         "the shared slot d of shared_rate would differ by parameter: [1.0, 2.0]",
         "the same hyperparameters for all parameters"),
    case(of_unknown_size, "reads_size reads a size as a Python number, and a graph that is",
         "a Python number for it, or np.where instead of if"),
    case(lambda: stepped(lambda w, g, *, rng=0: rng.normal(size=(2,))), "a draw of another size"),
    case(lambda: stepped(lambda w, g, *, rng=0: rng.normal(size=4)), "a draw of another size"),
    case(lambda: stepped(lambda w, g, *, rng=0: rng.exponential()),
         "rng has no exponential: what it draws is the same in every framework",
         "rng.normal(), uniform(), integers(low, high) or bits()"),
    case(lambda: stepped(draws), "more than 255 draws in one rule", "fewer draws"),
    case(lambda: stepped(lambda w, g, *, rng=0: rng.integers(3, 3)), "integers from [3, 3)",
         "between 1 and 2**24 of them"),
    case(lambda: rules.clip_by_global_norm(1.0), "was called with 1 positional values",
         "keywords for a preset", "clip_by_global_norm(g)"),
    # state
    case(lambda: made(rules.sgd).load_state_dict(None),
         "load_state_dict of NoneType, where a dict is expected", "what .state_dict() gave"),
    case(lambda folder: swapped(folder, lambda o, path: o.step(V)),
         "step inside swapped('avg'): the parameters hold", "the step after the with block"),
    case(lambda folder: swapped(folder, lambda o, path: o.save(path)), "saving inside swapped"),
    case(lambda folder: swapped(folder, lambda o, path: o.load(path)), "loading inside swapped"),
    case(swap_nothing, "no slot 'avg' in sgd", "one of none: it has no slots"),
    case(swap_scalar, "the slot s of w has shape (), the parameter (3,)"),
    case(lambda: changed(lambda s: s.pop("steps")), "the state has no steps", ".state_dict() gave"),
    case(lambda: changed(lambda s: s.update(rule="adam")), "the state of adam for the rule mom"),
    case(lambda: changed(lambda s: entry(s).update(name="x")),
         "the state has nothing for w and x, which is not here", "strict=False to load the rest"),
    case(lambda: changed(lambda s: entry(s)["slots"].update(m=M)),
         "the state has w.m as float32(2, 3), here it is float32(3,)", "same shapes and dtypes"),
    case(lambda: changed(lambda s: entry(s)["slots"].update(n=V)),
         "the state has a slot w.n, which is not here"),
    case(other_format, "a.npz has format 2, this version of gradwright reads format 1"),
    case(no_optimizer, "a.npz is no saved optimizer", "a file that .save wrote"),
]  # fmt: skip
