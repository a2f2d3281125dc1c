"""The command line: ``gradwright demo``, ``show``, ``check``, ``primitives``."""

import os


def main() -> None:
    """Run the command that the shell gave."""
    from .app import app

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's greetings are no news
    app(prog_name="gradwright")
