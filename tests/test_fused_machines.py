"""The same bits from code for AVX-512, AVX2 and plain x86-64; code for arm64 is generated."""

import llvmlite.binding as llvm
import numpy as np
import pytest
from fused_graphs import fused, graph_of, run
from test_fused_functions import FLOATS, arguments

from gradwright import rules
from gradwright.primitives import PRIMITIVES
from gradwright.targets.fused import engine, frame, kernel
from gradwright.targets.fused.functions import FUNCTIONS, LIBRARY, POLYNOMIALS

HOST = engine.host
# cpu, and the feature that it cannot do without
MACHINES = {"x86-64": "sse2", "haswell": "avx2", "skylake-avx512": "avx512f"}


@pytest.fixture(params=MACHINES)
def machine(request, monkeypatch):
    has = llvm.get_host_cpu_features()
    if not has.get(MACHINES[request.param]):
        pytest.skip(f"this processor runs no code for {request.param}")
    monkeypatch.setattr(engine, "host", lambda: (request.param, ""))
    return request.param


@pytest.fixture
def one_vector(monkeypatch):
    """Blocks of one vector: a quarter of the code to compile."""
    monkeypatch.setattr(frame, "BLOCK", frame.LANES)
    for module in (frame, kernel):
        monkeypatch.setattr(module, "UNROLL", 1)


def cases():
    for name in (*FUNCTIONS, *POLYNOMIALS):
        if PRIMITIVES[name].kind == "elementwise":
            yield name


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_bits_do_not_depend_on_the_machine(dtype, machine, one_vector, monkeypatch):
    different = []
    for name in cases():
        xs = arguments(dtype, PRIMITIVES[name].ufunc.nin, 300)
        if name in LIBRARY:  # where it is not called
            xs = [np.where(np.abs(x) < 2.0**20, x, 1) for x in xs]
        graph = graph_of(name, [dtype] * len(xs))
        (got,), _ = run(fused(graph), *xs)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "host", HOST)
            (want,), _ = run(fused(graph_of(name, [dtype] * len(xs))), *xs)
        bits = f"uint{8 * got.itemsize}"
        equal = (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))
        different += [] if equal.all() else [name]
    assert not different


NOISE = "0050973f"


def test_noise_does_not_depend_on_the_machine(machine):
    def trained():
        w = np.zeros(1000, np.float32)
        optimizer = rules.compact_sgd.options(engine="fused").numpy(w, rng=1)
        for _ in range(3):
            optimizer.step(np.linspace(-1, 1, 1000, dtype=np.float32))
        return w

    assert trained().sum().tobytes().hex() == NOISE


@pytest.mark.thorough
def test_code_for_arm64_is_generated(one_vector):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    for name in cases():
        for dtype in FLOATS:
            dtypes = [dtype] * PRIMITIVES[name].ufunc.nin
            module = llvm.parse_assembly(kernel.build(graph_of(name, dtypes), "f").assembly)
            module.verify()
            text = target.create_target_machine(opt=2).emit_assembly(module)
            assert "fmul\tv" in text or "\tret" in text
