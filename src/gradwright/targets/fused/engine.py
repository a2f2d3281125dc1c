"""LLVM's assembly to machine code, in this process, through llvmlite alone."""

import functools
import weakref
from typing import Any

import llvmlite.binding as llvm


def _machine(cpu: str, features: str) -> Any:
    """A target machine for one module: it must not outlive its first engine."""
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, jit=True
    )


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def host() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


KNOWN: "weakref.WeakValueDictionary[str, Code]" = weakref.WeakValueDictionary()


def code(assembly: str) -> "Code":
    """The machine code of a module: one, however often it is asked for (by graphs of any rank)."""
    found = KNOWN.get(assembly)
    if found is None:
        found = KNOWN[assembly] = Code(assembly)
    return found


class Code:
    """Machine code of one module; it lives as long as this object."""

    def __init__(self, assembly: str) -> None:
        machine = _machine(*host())
        self._module = llvm.parse_assembly(assembly)
        self._module.verify()
        # No optimizer runs: vectors are explicit, equal instructions are one already, and the code
        # is as fast without, in half the time.
        self._engine = llvm.create_mcjit_compiler(self._module, machine)
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))
