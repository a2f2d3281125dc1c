"""What a `host` node of a graph runs: a Python function on NumPy arrays, and checks of its result.

The node knows a `HostCall`: one Python function for one kind of arguments, on flat lists of arrays.
"""

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np

from . import dims, tree
from .dims import Shape
from .emit import broadcast_size, slice_size
from .errors import GradwrightError, SignatureError
from .gufunc import Gufunc
from .kinds import number_dtype
from .signature import Layout, Signature
from .targets.numpy import unbroadcast

Array = np.ndarray[Any, Any]

Within: TypeAlias = Callable[["HostCall", Callable[[], list[Any]]], list[Any]]

_handles = itertools.count()
_calls: weakref.WeakValueDictionary[int, "HostCall"] = weakref.WeakValueDictionary()
_ABSENT = object()
_KEPT, _KEPT_BYTES = 16, 1 << 28  # what is saved for rules: so many calls, so much of arguments


def find(handle: int) -> "HostCall":
    """The call of that number: all that a framework's operator has of it."""
    if (call := _calls.get(handle)) is None:
        raise GradwrightError(
            "compiled code calls a host op that is gone",
            "a reference to the op for as long as code that was compiled with it may run",
        )
    return call


class Host:
    """What all calls of one host op share."""

    def __init__(
        self,
        signature: Signature,
        function: Callable[..., Any],
        batch: str,
        pure: bool,
        saves: bool,
        gufunc: Gufunc | None,
    ) -> None:
        self.signature, self.function, self.name = signature, function, signature.name
        self.batch, self.is_pure, self.saves, self.gufunc = batch, pure, saves, gufunc
        self.last_error: BaseException | None = None
        self.saved: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()
        self._made: weakref.WeakValueDictionary[Hashable, HostCall] = weakref.WeakValueDictionary()

    def call(self, key: Hashable, make: Callable[[], "HostCall"]) -> "HostCall":
        """Find or make a call: a function that is traced twice has the same in both graphs."""
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = make()
        return made

    def keep(self, arrays: Sequence[Any], saved: Any) -> None:
        """Keep what the op saves for its rule, by the values of its arguments."""
        key = _content(arrays)
        with self._lock:
            self.saved[key] = saved
            self.saved.move_to_end(key)
            while len(self.saved) > 1 and (
                len(self.saved) > _KEPT or sum(map(_size, self.saved)) > _KEPT_BYTES
            ):
                self.saved.popitem(last=False)


def _content(arrays: Sequence[Any]) -> tuple[Any, ...]:
    found = [np.asarray(x) for x in arrays]
    return tuple((x.dtype.str, x.shape, x.tobytes()) for x in found)


def _size(content: Any) -> int:
    return sum(len(data) for _, _, data in content)


def line_of(function: Callable[..., Any]) -> str:
    """Where a function of the user's was written, as errors say it."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _program(shapes: Sequence[Shape]) -> Callable[..., list[tuple[Any, ...]]]:
    """The shapes of the results as a function of those of the arguments.

    Compiled from text, as programs are, so that a framework's symbols may be among the sizes.
    """

    def text(shape: Shape) -> str:
        return "".join(dims.text(d, lambda k, axis: f"xs[{k}][{axis}]") + ", " for d in shape)

    code = f"lambda xs: [{', '.join(f'({text(shape)})' for shape in shapes)}]"
    scope = {"broadcast_size": broadcast_size, "slice_size": slice_size}
    return eval(code, scope)  # type: ignore[no-any-return]  # compiled from text


class HostCall:
    """One Python function for one kind of arguments: types in, types out."""

    is_pure = True
    _values: Callable[[Sequence[Any]], list[Any]]  # of each kind of call

    def __init__(
        self,
        host: Host,
        ins: Sequence[str],
        numbers: Sequence[int],
        shapes: Sequence[Shape],
        outs: Sequence[str],
    ) -> None:
        self.host, self.ins, self.numbers = host, tuple(ins), frozenset(numbers)
        self.shapes, self.outs = tuple(shapes), tuple(outs)
        self.handle = next(_handles)
        self.programs: dict[str, Any] = {}  # what targets made of it
        self._shapes_for = _program(self.shapes)
        _calls[self.handle] = self

    def __repr__(self) -> str:
        return f"{self.name}#{self.handle}"

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def is_elementwise(self) -> bool:
        return self.host.batch == "elementwise"

    def result_type(self, k: int, shapes: Sequence[Shape]) -> tuple[Shape, str]:
        """The shape and dtype of an output, for arguments of these shapes."""
        if self.is_elementwise:
            return dims.broadcast(*shapes), self.outs[k]
        known = {(j, axis): d for j, s in enumerate(shapes) for axis, d in enumerate(s)}
        return tuple(dims.substitute(d, known) for d in self.shapes[k]), self.outs[k]

    def result_shapes(self, shapes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """The shapes of the outputs when it runs; sizes may be a framework's symbols."""
        if not self.is_elementwise:
            return self._shapes_for(shapes)
        rank = max(map(len, shapes))
        wide = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
        shape = tuple(broadcast_size(*sizes) for sizes in zip(*wide, strict=True))
        return [shape] * len(self.outs)

    def run(self, xs: Sequence[Any], within: Within) -> list[Array]:
        """Run it; the arrays that it gets cannot be written, those it gives are nobody else's.

        The framework that called it runs the user's function by `within`.
        """
        try:
            arrays = [self._given(k, x) for k, x in enumerate(xs)]
            shapes = self.result_shapes([np.shape(x) for x in arrays])
            values = within(self, lambda: self._values(arrays))
            rows = zip(values, shapes, self.outs, strict=True)
            return [self._fitted(value, shape, dtype) for value, shape, dtype in rows]
        except Exception as error:
            self.host.last_error = error
            raise

    def run_compiled(self, xs: Sequence[Any], within: Within) -> list[Array]:
        """Run it for compiled code, which knows exceptions by their text.

        And by their type: of a StopIteration TensorFlow makes the end of a dataset.
        """
        try:
            return self.run(xs, within)
        except GradwrightError:
            raise
        except Exception as error:
            raise GradwrightError(
                f"the host op {self.name} raised {type(error).__name__}: {error}",
                f"arguments that it can take; the exception is {self.name}.last_error",
                line_of(self.host.function),
            ) from error

    def _given(self, k: int, x: Any) -> Any:
        array = np.array(x, dtype=number_dtype(self.ins[k]), order="C", copy=None)
        if k in self.numbers:
            return array.item()
        array = array.view()
        array.flags.writeable = False
        return array

    def _fitted(self, value: Any, shape: tuple[int, ...], dtype: str) -> Array:
        """A value as a new array of the dtype that was declared."""
        array = np.asarray(value)
        if not np.can_cast(array.dtype, number_dtype(dtype), "same_kind"):
            raise self.mismatch(f"{array.dtype} for {dtype}")
        return np.array(self._shaped(array, shape), dtype=dtype, order="C")

    def _shaped(self, array: Array, shape: tuple[int, ...]) -> Array:
        if array.shape != shape:
            raise self.mismatch(f"an array of shape {array.shape} for one of {shape}")
        return array

    def mismatch(self, what: str) -> SignatureError:
        return SignatureError(
            f"the host op {self.name} returned {what}",
            "what out= declares (without it: one array of the shape and dtype that the arguments "
            "broadcast to), or another out=",
            line_of(self.host.function),
        )


class ValueCall(HostCall):
    """The function of a host op itself."""

    def __init__(self, host: Host, layout: Layout, out: tree.Spec, *types: Any) -> None:
        super().__init__(host, *types)
        self.layout, self.out = layout, out
        self.is_pure = host.is_pure

    def _values(self, arrays: Sequence[Any]) -> list[Any]:
        if self.host.gufunc is not None:
            self.host.gufunc.sizes([np.shape(x) for x in arrays])
        value, saved = self._split(self._result(arrays))
        if self.host.saves:
            self.host.keep(arrays, saved)
        return tree.flatten_like(self.out, value, self.mismatch)

    def _result(self, arrays: Sequence[Any]) -> Any:
        host, values = self.host, self.layout.arguments(arrays)
        return host.signature.call(host.function, values, host.signature.options)

    def _split(self, result: Any) -> tuple[Any, Any]:
        if not self.host.saves:
            return result, None
        if not isinstance(result, tuple) or len(result) != 2:
            raise self.mismatch("one value where saves=True asks for (value, saved)")
        return result

    def saved(self, arrays: Sequence[Any]) -> Any:
        """What the function saved when it ran on these arguments, or saves when it runs again."""
        kept = self.host.saved.get(_content(arrays), _ABSENT)
        if kept is _ABSENT:
            kept = self._split(self._result(arrays))[1]
            self.host.keep(arrays, kept)
        return kept


class PullCall(HostCall):
    """A reverse rule that runs on the host: cotangents, arguments and results in."""

    def __init__(
        self,
        host: Host,
        function: Callable[..., Any],
        rule: Callable[[Sequence[Any]], list[Any]],
        *types: Any,
    ) -> None:
        super().__init__(host, *types)
        self.function, self.rule = function, rule  # the user's, and how it is called

    @property
    def is_elementwise(self) -> bool:
        return False

    def _values(self, arrays: Sequence[Any]) -> list[Any]:
        given = self.rule(arrays)
        return [np.float32(0) if value is None else value for value in given]

    def _shaped(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A cotangent may have the shape that its argument was broadcast to."""
        if array.shape == shape:
            return array
        try:
            wide = np.broadcast_to(array, np.broadcast_shapes(array.shape, shape))
        except ValueError:
            raise self.mismatch(f"an array of shape {array.shape} for one of {shape}") from None
        return np.asarray(unbroadcast(wide, shape))

    def mismatch(self, what: str) -> SignatureError:
        return SignatureError(
            f"the vjp of the host op {self.name} returned {what}",
            "one cotangent of each argument's shape, or of what it was broadcast to",
            line_of(self.function),
        )


def raised_on_host(error: BaseException) -> bool:
    """Whether an error comes from Python on the host, and is the user's own."""
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code is HostCall.run.__code__:
            return True
        place = place.tb_next
    return False
