"""The command line: ``gradwright demo``, ``gradwright show``, ``gradwright primitives``."""


def main() -> None:
    """Run the command that the shell gave."""
    from .app import app

    app(prog_name="gradwright")
