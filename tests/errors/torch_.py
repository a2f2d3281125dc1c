"""Tensors, parameters and states of torch that cannot be."""

import collections

import numpy as np
import torch
from errors.case import case

import gradwright as gw
from gradwright import rules, tree
from gradwright.targets.torch import compiled

V, M = torch.ones(3), torch.ones(2, 3)
SPARSE = torch.ones(3).to_sparse()
Pair = collections.namedtuple("Pair", "a b")


@gw.op
def twice(x):
    return 2 * x


@gw.op
def own(x):
    return 2 * x


@own.vjp
def _(g, x):
    return g


@gw.host_op()
def reentrant(x):
    return torch.ones(3).numpy()


def parameter(*shape, **options):
    return torch.nn.Parameter(torch.ones(*shape or (3,), **options))


def made(rule, params=None, **keywords):
    return rule.torch([parameter()] if params is None else params, **keywords)


def misspelt(key):
    optimizer = made(rules.sgd)
    optimizer.param_groups[0][key] = 1
    optimizer.step()


def swapped():
    w = parameter()
    optimizer = made(gw.chain(rules.sgd, rules.ema), [w])
    w.sum().backward()
    optimizer.step()
    with optimizer.swapped("avg"):
        optimizer.step()


def swap_nothing():
    with made(rules.sgd).swapped("avg"):
        pass


def stepped(rule, params=None):
    """An optimizer that has had one update, so it has slots."""
    optimizer = made(rule, params)
    for group in optimizer.param_groups:
        for w in group["params"]:
            w.grad = torch.ones_like(w)
    optimizer.step()
    return optimizer


def loaded(here, state, change=lambda state: None):
    change(state)
    here.load_state_dict(state)


def renamed_slot(state):
    state["state"][0]["n"] = state["state"][0].pop("m")


def wide_slot(state):
    state["state"][0]["m"] = state["state"][0]["m"].double()


def names_then_none():
    optimizer = made(rules.sgd, [("a", parameter())])
    optimizer.add_param_group({"params": [parameter()]})


def halves():
    whole = torch.ones(6)
    return [whole[:4], whole[2:]]


def in_eager():
    with gw.eager():
        twice(parameter())


NAMED = gw.partition({"*.bias": rules.sgd, "*": rules.adam})

CASES = [
    case(lambda: gw.op(lambda x: torch.sin(x))(V), "torch.sin is called on a traced array",
         "np.sin; what is native in every framework is written in NumPy"),
    case(lambda: gw.op(lambda x: torch.nn.functional.softmax(x, 0))(V),
         "torch.nn.functional.softmax is called on a traced array", "e = np.exp(x - np.max(x"),
    case(lambda: gw.op(lambda x: torch.linalg.inv(x))(M), "torch.linalg.inv is called on a"),
    # ops
    case(lambda: reentrant(V), "the host op reentrant was called by torch, and calls torch itself",
         "NumPy in it"),
    case(lambda: twice(SPARSE), "twice was called with a tensor of layout torch.sparse_coo",
         "x.to_dense()"),
    case(lambda: twice(V.to(torch.complex64)), "twice was called with a tensor of torch.complex64"),
    case(lambda: gw.op(lambda x, y: x)(V, np.ones(3, complex)), "was called with complex128",
         "tensors of real numbers"),
    case(lambda: torch.jit.trace(reentrant, (V,)), "reentrant inside torch.jit.trace or torch.exp",
         "it runs Python on the host", "a traced op (gw.op)"),
    case(lambda: torch.jit.trace(own, (V,)), "own inside torch.jit.trace or torch.export",
         "torch.compile, or an op without a rule of its own"),
    case(lambda: compiled._named(tree.flatten(Pair(1, 2))[1]),
         "a Pair as a result in torch.compile", "a tuple or a dict"),
    case(lambda: gw.op(lambda x: gw.global_sum(x)).source("torch"),
         "global_sum is not in the torch target: a sum over all parameters belongs to a rule",
         "another formula, or arrays that do not belong to torch"),
    case(in_eager, "a tensor that requires a gradient inside gw.eager(), which runs NumPy", "x."),
    # parameters
    case(lambda: made(rules.sgd, {parameter()}), "params is a set, which has no order", "a list"),
    case(lambda: made(rules.sgd, [("a", parameter()), parameter()]),
         "some of the parameters have no name", "model.named_parameters()"),
    case(lambda: made(rules.sgd, [1.0]), "the parameter 0 is a float", "a torch tensor"),
    case(lambda: made(rules.sgd, [SPARSE]), "the parameter 0 has the layout torch.sparse_coo",
         "w.to_dense()"),
    case(lambda: made(rules.sgd, [torch.arange(3)]), "the parameter 0 is torch.int64", "float32"),
    case(lambda: made(rules.sgd, [torch.ones(1).expand(3)]), "the parameter 0 is expanded",
         "w.clone()"),
    case(lambda: made(rules.sgd, halves()), "the parameters 0 and 1 share memory", "each tensor"),
    case(lambda: made(NAMED), "partition chooses a rule by the parameter's name, and params has",
         "model.named_parameters()"),
    case(lambda: made(rules.sgd, [("a", parameter()), ("a", parameter())]),
         "two parameters are named a", "a name for each"),
    case(names_then_none, "some groups have names and some have none", "names in all groups"),
    case(lambda: made(gw.rule(lambda w, g, *, lr: w - lr * g)), "has no value for lr",
         "lr=… when the optimizer is made"),
    # steps
    case(swapped, "step inside swapped('avg'): the parameters hold", "after the with block"),
    case(swap_nothing, "no slot 'avg' in sgd", "it has no slots"),
    case(lambda: rules.sgd(V.to(torch.complex64), V.to(torch.complex64)),
         "a rule was called with torch.complex64", "dense tensors"),
    case(lambda: rules.sgd(parameter(), V), "a rule was called with a tensor that requires a grad",
         "w.detach()"),
    case(lambda: misspelt("lrr"), "a param group has 'lrr', which sgd does not read", "lr, if"),
    case(lambda: made(rules.sgd, lr=lambda k: 0.1), "sgd: lr is <function", "gw.schedules.of(f)"),
    # states
    case(lambda: loaded(made(rules.sgd), torch.optim.SGD([parameter()], lr=0.1).state_dict()),
         "the state is no gradwright optimizer's", "opt.state_dict() gave"),
    case(lambda: loaded(made(rules.sgd), made(rules.adam).state_dict()),
         "the state of adam for sgd", "an optimizer of the same rule"),
    case(lambda: loaded(made(rules.sgd, [("a", parameter())]),
                        made(rules.sgd, [("b", parameter())]).state_dict()),
         "the state has nothing for a and b, which is not here", "the same parameters"),
    case(lambda: loaded(made(rules.momentum), stepped(rules.momentum).state_dict(), renamed_slot),
         "the state has the slots ['n'] for 0, here it has ['m']", "the same rule"),
    case(lambda: loaded(stepped(rules.momentum), stepped(rules.momentum).state_dict(), wide_slot),
         "the state has m of 0 as torch.float64(3,), here it is torch.float32(3,)", "the same par"),
    case(lambda: stepped(rules.sgd.options(engine="fused"), [parameter(device="meta")]),
         'sgd with engine="fused" cannot update 0: a tensor on meta', "lets the array library do"),
]  # fmt: skip
