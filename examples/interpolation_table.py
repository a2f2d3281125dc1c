"""Look values up in a table and interpolate, with gradients by the place and by the table.

python examples/interpolation_table.py
"""

import numpy as np

import gradwright as gw

KNOTS = np.linspace(0.0, 1.0, 9)


@gw.host_op(out=lambda x, table: x, saves=True)
def look_up(x, table):
    """The table's values at KNOTS, linear in between; constant outside."""
    k = np.clip(np.searchsorted(KNOTS, x) - 1, 0, len(KNOTS) - 2)
    t = np.clip((x - KNOTS[k]) / (KNOTS[k + 1] - KNOTS[k]), 0, 1)
    return (1 - t) * table[k] + t * table[k + 1], (k, t)


@look_up.vjp(host=True)
def _(g, x, table, out, saved):
    k, t = saved  # where the values were found: not looked for again
    inside = (x > KNOTS[0]) & (x < KNOTS[-1])
    dx = g * inside * (table[k + 1] - table[k]) / (KNOTS[k + 1] - KNOTS[k])
    dtable = np.zeros_like(table)
    np.add.at(dtable, k, g * (1 - t))
    np.add.at(dtable, k + 1, g * t)
    return dx, dtable


def loss(table, x, y):
    return np.mean((look_up(x, table) - y) ** 2)


if __name__ == "__main__":
    x = np.random.default_rng(0).random(500)
    table, slope = np.zeros(len(KNOTS)), gw.grad(loss)
    for _ in range(300):
        table = table - 4 * slope(table, x, np.sin(2 * np.pi * x))
    print("learned ", table.round(2))
    print("sin(2πx)", np.sin(2 * np.pi * KNOTS).round(2))
    print(
        "slope at 1/4, 1/2, 2:",
        gw.grad(lambda x: np.sum(look_up(x, table)))(np.array([0.26, 0.51, 2.0])),
    )
