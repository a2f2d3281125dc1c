"""``python -m gradwright``: the command line."""

from .cli import main

main()
