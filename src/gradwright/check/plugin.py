"""A plugin of pytest: a test that takes `gradwright_framework` runs once for each framework.

    def test_huber(gradwright_framework):
        gw.check(huber, x, frameworks=[gradwright_framework])

``pytest --gradwright-frameworks numpy,torch`` names them; without it, all that are installed.
"""

from typing import Any

FIXTURE = "gradwright_framework"


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("gradwright")
    group.addoption(
        "--gradwright-frameworks",
        metavar="NAMES",
        help="the frameworks that gradwright_framework stands for, with commas between them",
    )


def pytest_generate_tests(metafunc: Any) -> None:
    if FIXTURE not in metafunc.fixturenames:
        return
    from . import frameworks

    asked = metafunc.config.getoption("--gradwright-frameworks")
    names = frameworks.chosen(asked.split(",")) if asked else frameworks.installed()
    metafunc.parametrize(FIXTURE, names)
