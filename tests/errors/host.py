"""Host ops that are not what they declare, or are asked for what they do not have."""

import numpy as np
from errors.case import case

import gradwright as gw
from gradwright import hostcall

V = np.ones(3)


def made(function=lambda x: x, **options):
    return gw.host_op(**options)(function)


def total(f):
    return lambda *xs: np.sum(f(*xs))


def pulled(rule, **options):
    """The gradient of a host op by a rule on the host."""
    op = made(lambda x: x, **options)
    op.vjp(host=True)(rule)
    return gw.grad(total(op))(V)


def unsaved():
    return made(saves=True)(V)


def again():
    op = gw.op(lambda x: x)
    op.surrogate(lambda x: noisy(x) ** 2)
    return gw.grad(total(op))(V)


@gw.host_op(pure=False)
def noisy(x):
    return x + np.random.rand()


noisy.vjp(lambda g, x: g)


@gw.host_op()
def bare(x):
    return x


@gw.host_op()
def on_host(x):
    return x


@on_host.vjp(host=True)
def _(g, x):
    return g


def second():
    return gw.grad(total(gw.grad(total(on_host))))(V)


@gw.host_op()
def fails(x):
    raise KeyError("boom")


def compiled():
    """What compiled code of a framework calls."""
    nodes = fails.example().function.primal.nodes
    call = next(n["function"] for n in nodes if n.prim == "host")
    call.run_compiled([np.ones(3)], lambda call, body: body())


CASES = [
    case(lambda: noisy.options(engine="fused"), "noisy runs on the host: no engine computes it",
         "the engine of an op that calls it"),
    case(lambda: gw.op(lambda x: noisy(x) * 2).options(engine="fused")(V),
         '<lambda> with engine="fused": it calls Python that is not pure', 'engine="auto"'),
    case(lambda: hostcall.find(-1), "compiled code calls a host op that is gone", "a reference"),
    case(compiled, "the host op fails raised KeyError: 'boom'", "is fails.last_error"),
    # declarations
    case(lambda: made(batch="map"), "batch='map' of a host op", "'loop' or 'elementwise'"),
    case(lambda: made(saves=True, pure=False), "saves=True and pure=False", "one more result"),
    case(lambda: made(out="n->n"), "out='n->n' of the host op <lambda> is no signature of shapes",
         '"(n,m),(m)->(n)"'),
    case(lambda: made(out="(n),(n)->(n)"), "names 2 arguments of 1 (x)", "one shape for each"),
    case(lambda: made(out="(n)->(m)"), "no argument has the size m", "a size of an argument"),
    case(lambda: made(out=lambda x: ())(V), "out= of the host op <lambda> declares no array"),
    case(lambda: made(out=lambda x: np.sum(x), batch="elementwise")(V),
         "declares another shape than the arguments broadcast to", 'batch="loop"'),
    case(lambda: made().partials(lambda x: 1), "partials of the host op <lambda>, which is not",
         '@gw.host_op(batch="elementwise")'),
    case(lambda: made(saves=True).vjp(lambda g, x, out, saved: g), "takes (g, x, out, saved)",
         "(g, x[, out])"),
    case(lambda: made().vjp(host=True)(lambda g: g), "the vjp of <lambda> takes (g)"),
    # what the body returns
    case(lambda: made(out="(n,n)->(n)")(np.ones((2, 3))), "takes arrays of shapes (n,n), and got "
         "(2, 3)", "arrays of these shapes"),
    case(lambda: made(out="(n)->(n)")(np.ones((2, 3))), "takes arrays of shapes (n), and got (?, "),
    case(lambda: made(lambda x: x[:2])(V), "returned an array of shape (2,) for one of (3,)",
         "what out= declares"),
    case(lambda: made(lambda x: 1j * x)(V), "returned complex128 for float64", "or another out="),
    case(lambda: made(lambda x: (x, x))(V), "returned a tuple where one array is expected"),
    case(unsaved, "returned one value where saves=True asks for (value, saved)"),
    case(lambda: pulled(lambda g, x: g[:2]), "the vjp of the host op <lambda> returned an array "
         "of shape (2,) for one of (3,)", "one cotangent of each argument's shape"),
    case(lambda: pulled(lambda g, x: (g, g)), "the vjp of <lambda> gives 2 values for 1"),
    # derivatives
    case(lambda: gw.grad(total(bare))(V), "the derivative of the host op bare, which has no rule",
         "@bare.vjp with (g, …)"),
    case(lambda: bare.example().function.vjp, "the derivative of the host op bare, which has no"),
    case(second, "another derivative of the host op on_host, whose rule runs on the host",
         "@on_host.vjp with a rule in NumPy, without host=True"),
    case(again, "the derivative of <lambda>_surrogate runs noisy again, which is not pure",
         "noisy outside of <lambda>_surrogate"),
]  # fmt: skip
