"""What `import gradwright` loads: NumPy, and little of the standard library."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys, time
import numpy
before, start = set(sys.modules), time.perf_counter()
import gradwright
seconds = time.perf_counter() - start
print(json.dumps([seconds, sorted(set(sys.modules) - before)]))
"""
HEAVY = {
    "torch", "tensorflow", "jax", "jaxlib", "keras", "optax", "scipy", "matplotlib", "pandas",
    "sklearn", "llvmlite", "numba", "typer", "rich", "click", "hypothesis", "pytest",
}  # fmt: skip


def loaded(program=PROGRAM):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_no_framework_and_nothing_heavy_is_loaded(record_property):
    seconds, modules = loaded()
    record_property("seconds over NumPy", seconds)  # reported; a wall time is no test
    packages = {name.partition(".")[0] for name in modules}
    assert not packages & HEAVY
    others = [name for name in modules if not name.startswith("gradwright")]
    assert len(others) < 40, others
    assert "numpy.random" not in modules and "gradwright.cli" not in modules


def test_a_rule_and_an_op_on_numpy_arrays_load_no_framework_either():
    _, modules = loaded(
        PROGRAM.replace(
            "import gradwright\n",
            """import gradwright as gw
w = numpy.ones(3)
gw.rules.compact_sgd.numpy(w, rng=0).step(w.copy())
gw.grad(lambda x: numpy.sum(numpy.sin(x)))(w)
gw.rules.adam.explain()
""",
        )
    )
    packages = {name.partition(".")[0] for name in modules}
    assert packages & HEAVY == {"llvmlite"}  # for the noise, which a kernel draws
    assert not any(name.startswith("gradwright.targets.t") for name in modules)


def test_the_test_would_see_a_heavy_import():
    _, modules = loaded(PROGRAM.replace("import gradwright", "import scipy"))
    assert {name.partition(".")[0] for name in modules} & HEAVY
