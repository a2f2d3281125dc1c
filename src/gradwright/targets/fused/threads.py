"""A few threads that share the items of large work; small work stays on the caller's.

Kernels run without the GIL. Items of work are fixed, whoever does them, so the bits do not depend
on the number of threads.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

PARTS = 4  # for each thread
SMALL = 500_000  # elements below which waking a thread costs more than it saves


def count(others: int | None = None) -> int:
    """How many threads work, the caller's included.

    ``GRADWRIGHT_NUM_THREADS``, else as many as the framework has whose arrays these are (`others`),
    else ``OMP_NUM_THREADS``, else the processors that this process may use.
    """
    for name in ("GRADWRIGHT_NUM_THREADS", "OMP_NUM_THREADS"):
        if (asked := os.environ.get(name, "")).isdigit():
            return max(1, int(asked))
        if others is not None:
            return others
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pool:
    """The executor of this process, made when it is first needed and anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a forked child the threads are gone, and the lock may be held by one of them."""
        self._lock, self._executor = threading.Lock(), None

    def submit(self, run: Callable[[], None]) -> "Future[None]":
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    max_workers=max(1, count() - 1), thread_name_prefix="gradwright"
                )
        return self._executor.submit(run)


_pool = _Pool()


def share(run: Callable[[int, int], None], cuts: Sequence[int], count: int) -> None:
    """Run the items between each two cuts, on this thread and on others beside it.

    Whoever is free takes the next part, so that nobody waits for a thread that is not running.
    """
    todo = deque(zip(cuts, cuts[1:], strict=False))

    def work() -> None:
        while True:
            try:
                first, last = todo.popleft()
            except IndexError:
                return
            run(first, last)

    others = [_pool.submit(work) for _ in range(count - 1)]
    work()
    for other in others:
        if not other.cancel():
            other.result()
