"""``python -m bench [NAME …] [--data FILE.npz] [--rounds N] [--json FILE] [--document FOLDER]``"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from . import document, runner

NAMES = ("demo", "tf1", "keras", "jax", "fused", "ops", "calls")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and say with the exit code whether every limit was kept."""
    options = _parser().parse_args(arguments)
    if options.read:
        of, results = _read(options.read)
    else:
        of, results = document.machine(), list(_measured(options))
    if options.json:
        data = {"machine": of, "results": [runner.as_dict(r) for r in results]}
        Path(options.json).write_text(json.dumps(data, indent=2) + "\n")
    if options.markdown:
        Path(options.markdown).write_text(runner.markdown(results))
    if options.document:
        document.write(results, of, Path(options.document))
    return 0 if all(r.kept for r in results) else 1


def _measured(options: argparse.Namespace) -> Iterator[runner.Result]:
    for name in options.names or NAMES:
        for contest in import_module(f"bench.{name}").contests(options.data):
            result = runner.measure(contest, options.rounds)
            print(runner.table([result]), flush=True)
            yield result


def _read(files: Sequence[str]) -> tuple[Any, list[runner.Result]]:
    """What earlier runs wrote; the machine is that of the first."""
    found = [json.loads(Path(file).read_text()) for file in files]
    return found[0]["machine"], [runner.from_dict(r) for data in found for r in data["results"]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description=runner.__doc__)
    # no choices: argparse would refuse the empty list
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--data", help="an .npz file with x_train and y_train")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="FILE", help="where the numbers are written, too")
    parser.add_argument("--markdown", metavar="FILE", help="where the tables are written, too")
    parser.add_argument("--document", metavar="FOLDER", help="where performance.md is written")
    parser.add_argument(
        "--read", metavar="FILE", nargs="+", help="measure nothing: what --json wrote"
    )
    return parser


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.exit(main())
