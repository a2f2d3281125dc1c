"""Rules and their optimizers: ten seeded faults, and no fault where there is none."""

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules
from gradwright.check import main


@gw.rule
def adam(w, g, m=0.0, v=0.0, *, lr=1e-2, b1=0.9, b2=0.99, eps=1e-5, weight_decay=0.1, step=1):
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    mhat, vhat = m / (1 - b1**step), v / (1 - b2**step)
    return w - lr * (mhat / (np.sqrt(vhat) + eps) + weight_decay * w), m, v


@gw.rule
def noisy(w, g, *, lr=0.1, noise=0.01, rng):
    return w - lr * g + noise * rng.normal()


@gw.rule(domain="[0, bound)")
def ring(w, g, *, lr=0.1, bound=4.0):
    return np.mod(w - lr * g, bound)


# --- the same, with a fault in the equation ------------------------------------------------------
@gw.rule
def eps_inside(w, g, m=0.0, v=0.0, *, lr=1e-2, b1=0.9, b2=0.99, eps=1e-5, weight_decay=0.1, step=1):
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    mhat, vhat = m / (1 - b1**step), v / (1 - b2**step)
    return w - lr * (mhat / np.sqrt(vhat + eps) + weight_decay * w), m, v


@gw.rule
def uncorrected(
    w, g, m=0.0, v=0.0, *, lr=1e-2, b1=0.9, b2=0.99, eps=1e-5, weight_decay=0.1, step=1
):
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    return w - lr * (m / (np.sqrt(v) + eps) + weight_decay * w), m, v


@gw.rule
def coupled(w, g, m=0.0, v=0.0, *, lr=1e-2, b1=0.9, b2=0.99, eps=1e-5, weight_decay=0.1, step=1):
    g = g + weight_decay * w
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    mhat, vhat = m / (1 - b1**step), v / (1 - b2**step)
    return w - lr * mhat / (np.sqrt(vhat) + eps), m, v


@gw.rule
def scaled_noise(w, g, *, lr=0.1, noise=0.01, rng):
    return w - lr * g + lr * noise * rng.normal()


@gw.rule(domain="[0, bound]")
def closed(w, g, *, lr=0.1, bound=4.0):
    return np.mod(w - lr * g, bound)


@gw.rule
def decayed(w, g, *, lr=0.1, step=1):
    return w - lr / step * g


@gw.rule
def decayed_from_0(w, g, *, lr=0.1, step=0):
    return w - lr / (1 + step) * g


@gw.rule
def warmed(w, g, *, lr=0.1, step=1):
    return w - lr / (1 + step) * g


# --- the same, with a fault around it ------------------------------------------------------------
class Wrapped:
    """An optimizer of NumPy arrays."""

    rule = adam

    def __init__(self, params, **keywords):
        self.params = params
        self.inner = self.rule.numpy(params, **keywords)

    def step(self, grads):
        self.inner.step(grads)

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)


class Forgets(Wrapped):
    def state_dict(self):
        state = self.inner.state_dict()
        for p in state["parameters"]:
            p["slots"]["v"] = np.zeros_like(p["slots"]["v"])
        return state


class Rounds(Wrapped):
    """Loads every slot in the dtype that it likes."""

    def __init__(self, params, **keywords):
        super().__init__(params, **keywords)
        self.loaded = False

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)
        self.loaded = True

    def state_dict(self):
        state = self.inner.state_dict()
        for p in state["parameters"]:
            if self.loaded:
                p["slots"] = {k: v.astype(np.float16) for k, v in p["slots"].items()}
        return state


class Copies(Wrapped):
    def __init__(self, params, **keywords):
        super().__init__([p.copy() for p in params], **keywords)


class SameNoise(Wrapped):
    """One optimizer for each parameter, all with one seed and one identity."""

    def __init__(self, params, **keywords):
        self.each = [noisy.numpy([p], **keywords) for p in params]

    def step(self, grads):
        for optimizer, g in zip(self.each, grads, strict=True):
            optimizer.step([g])


def of(variant):
    return lambda params, **keywords: variant.numpy(params, **keywords)


FAULTS = {
    "eps inside the root": (adam, of(eps_inside), "keyword", "eps enters in another way"),
    "step from 0": (warmed, of(decayed_from_0), "step", "counted from 0"),
    "bias correction missing": (adam, of(uncorrected), "bias correction", "as if it were large"),
    "noise scaled by lr": (noisy, of(scaled_noise), "noise", "off by a factor of 0.1"),
    "decay coupled": (adam, of(coupled), "keyword", "weight_decay enters in another way"),
    "slot not saved": (adam, Forgets, "not saved", "another way"),
    "slot dtype lost": (adam, Rounds, "slot dtype", "comes back as float16"),
    "written through a copy": (adam, Copies, "not written", "as they were"),
    "domain closed at the top": (ring, of(closed), "domain", "a parameter is 4, outside of"),
    "same noise for equal shapes": (noisy, SameNoise, "same noise", "get equal noise"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen_and_named(name):
    rule, optimizer, kind, text = FAULTS[name]
    with pytest.raises(gw.CheckFailure) as raised:
        gw.check(rule, optimizer=optimizer, frameworks=["numpy"])
    found = {c.diagnosis.kind: c.text for c in raised.value.report.faults}
    assert kind in found, str(raised.value)
    assert text in found[kind], found


# --- faults that a run with one list of parameters does not show -------------------------------
class IgnoresGroups(Wrapped):
    def __init__(self, params, **keywords):
        if isinstance(params[0], dict):
            params = [{"params": group["params"]} for group in params]
        super().__init__(params, **keywords)


class Retraces(Wrapped):
    """Makes its optimizer anew when a number changes."""

    def __init__(self, params, **keywords):
        super().__init__(params, **keywords)
        self.param_groups = self.inner.param_groups

    def step(self, grads):
        adam.__wrapped__(np.ones(1), np.ones(1))
        self.inner.step(grads)


class TwiceMoved(Wrapped):
    """Takes a parameter that is given twice, and moves it twice."""

    def __init__(self, params, **keywords):
        self.each = [adam.numpy([p], **keywords) for p in params]

    def step(self, grads):
        for optimizer, g in zip(self.each, grads, strict=True):
            optimizer.step([g])


class Repeats(Wrapped):
    """Draws with one seed at each step."""

    rule = noisy

    def __init__(self, params, **keywords):
        self.params, self.keywords = params, keywords

    def step(self, grads):
        noisy.numpy(self.params, **self.keywords).step(grads)


CELLS = {
    "groups": (adam, IgnoresGroups, "groups"),
    "numbers change": (adam, Retraces, "error"),
    "tied": (adam, TwiceMoved, "groups"),
}


@pytest.mark.parametrize("check", CELLS)
def test_a_fault_of_lists_is_seen_in_its_cell(check):
    rule, optimizer, kind = CELLS[check]
    cell = main.report(rule, (), {"optimizer": optimizer}, ["numpy"], "quick", 0).cell(
        check, "numpy"
    )
    assert cell.status == "fault" and cell.diagnosis.kind == kind, cell


def test_noise_that_repeats_itself():
    assert not main.report(noisy, (), {"optimizer": Repeats}, ["numpy"], "quick", 0)


@pytest.mark.parametrize("rule", [adam, noisy, ring, decayed], ids=lambda rule: rule.name)
def test_the_rules_themselves_are_right(rule):
    assert gw.check(rule, frameworks=["numpy"])


@pytest.mark.parametrize("name", rules.__all__)
def test_the_library_is_right(name):
    assert main.report(getattr(rules, name), (), {}, ["numpy"], "quick", 0)


@pytest.mark.framework
@pytest.mark.parametrize(
    "rule, framework", [(adam, "torch"), (noisy, "torch"), (noisy, "tensorflow"), (ring, "torch")]
)
def test_the_rules_are_right_in_a_framework(rule, framework):
    pytest.importorskip(framework)
    report = main.report(rule, (), {}, [framework], "quick", 0)
    assert report, str(report)


@pytest.mark.framework
def test_somebody_elses_optimizer_beside_an_equation():
    torch = pytest.importorskip("torch")
    given = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-8}
    preset = rules.adam(lr=1e-2)

    def theirs(params, **keywords):
        return torch.optim.Adam(params, **given)

    report = main.report(preset, (), {"optimizer": theirs}, ["torch"], "quick", 0)
    trajectory = report.cell("trajectory", "torch")
    assert trajectory.status == "ok", str(report)
