"""``python -m bench [NAME …] [--data FILE.npz] [--rounds N] [--json FILE] [--markdown FILE]``"""

import argparse
import json
import os
import sys
from importlib import import_module
from pathlib import Path

from . import runner

NAMES = ("demo", "tf1", "keras", "jax", "fused", "ops", "calls")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and say with the exit code whether every limit was kept."""
    options = _parser().parse_args(arguments)
    results = []
    for name in options.names or NAMES:
        for contest in import_module(f"bench.{name}").contests(options.data):
            results.append(runner.measure(contest, options.rounds))
            print(runner.table(results[-1:]), flush=True)
    if options.json:
        text = json.dumps([runner.as_dict(r) for r in results], indent=2)
        Path(options.json).write_text(text + "\n")
    if options.markdown:
        Path(options.markdown).write_text(runner.markdown(results))
    return 0 if all(r.kept for r in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description=runner.__doc__)
    # no choices: argparse would refuse the empty list
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--data", help="an .npz file with x_train and y_train")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="FILE", help="where the numbers are written, too")
    parser.add_argument("--markdown", metavar="FILE", help="where the tables are written, too")
    return parser


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.exit(main())
