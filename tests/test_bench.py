import json

import numpy as np
import pytest

import gradwright as gw
from bench import __main__ as command
from bench import demo, document, fused, ops, runner
from bench.runner import OURS, Contest, Result, measure, table


class Clock:
    """Time that passes only when a run says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def run(self, *durations):
        rest = iter(durations)

        def take():
            self.now += next(rest)

        return take


def test_medians_and_ratios_of_interleaved_runs():
    clock = Clock()
    # the first duration is the warm-up, which counts for nothing
    runs = {OURS: clock.run(99, 2, 3, 50), "peer": clock.run(99, 4, 40, 6)}
    result = measure(Contest("job", runs, {"peer": 0.4}), rounds=3, clock=clock)
    assert result.seconds == {OURS: 3, "peer": 6}
    assert result.ratio("peer") == 0.5
    assert result.quartiles == {OURS: (2.5, 26.5), "peer": (5, 23)}
    assert not result.kept


def test_each_round_begins_with_another_run():
    order = []
    runs = {name: (lambda name=name: order.append(name)) for name in (OURS, "a", "b")}
    measure(Contest("job", runs), rounds=3)
    assert order[3:] == [OURS, "a", "b", "a", "b", OURS, "b", OURS, "a"]


def test_the_table_has_every_run_with_its_ratio_and_its_limit():
    result = Result("job", {OURS: 0.003, "fast": 0.002, "slow": 0.01}, {"fast": 1.3, "slow": 0.5})
    lines = table([result]).splitlines()
    assert lines[0] == "job"
    assert lines[1].split() == ["gradwright", "3.000", "ms"]
    assert "ours is 1.50 of it (limit 1.3: MISSED)" in lines[2]
    assert "ours is 0.30 of it (limit 0.5: kept)" in lines[3]


@pytest.mark.parametrize(("limit", "code"), [(2.0, 0), (0.5, 1)])
def test_the_command_prints_writes_json_and_says_whether_limits_were_kept(
    monkeypatch, capsys, tmp_path, limit, code
):
    results = [Result("job", {OURS: 1.0, "peer": 1.0}, {"peer": limit})]
    monkeypatch.setattr(demo, "contests", lambda data: [None])
    monkeypatch.setattr(runner, "measure", lambda contest, rounds: results[0])
    file = tmp_path / "numbers.json"
    tables = tmp_path / "tables.md"
    arguments = ["demo", "--json", str(file), "--markdown", str(tables)]
    assert command.main(arguments) == code
    assert "peer" in capsys.readouterr().out
    assert f"| peer | 1000.000 |  | 1.00 | {limit:g} |" in tables.read_text()
    data = json.loads(file.read_text())
    assert data["machine"]["versions"]["numpy"] == np.__version__
    (found,) = data["results"]
    assert found == {
        "name": "job",
        "seconds": {OURS: 1.0, "peer": 1.0},
        "quartiles": {},
        "ratios": {"peer": 1.0},
        "limits": {"peer": limit},
        "kept": code == 0,
        "bounds": [],
        "of_bounds": 0.0,
        "size": 0,
        "traffic": 0,
    }


@pytest.mark.parametrize(("ours", "kept"), [(5.0, True), (5.3, False)])
def test_our_time_is_compared_with_the_largest_bound(ours, kept):
    seconds = {OURS: ours, "memory": 1.0, "arithmetic": 4.0}
    result = Result("job", seconds, {}, bounds=("memory", "arithmetic"), of_bounds=1.3)
    assert result.kept == kept
    assert f"{ours / 4:.2f} of the largest bound" in table([result])


def test_the_page_is_made_of_what_was_written(tmp_path):
    pytest.importorskip("matplotlib")
    results = [Result("a job", {OURS: 0.002, "peer": 0.001}, {"peer": 1.5}, bounds=["peer"],
                      of_bounds=3.0)]  # fmt: skip
    for n in (10, 1000):
        seconds = {OURS: n * 2e-9, "limit": n * 1e-9}
        results.append(Result(f"{n}", seconds, {}, size=n, traffic=28 * n))
    file = tmp_path / "results.json"
    data = {"machine": document.machine(), "results": [runner.as_dict(r) for r in results]}
    file.write_text(json.dumps(data))
    assert command.main(["--read", str(file), "--document", str(tmp_path / "docs")]) == 1
    text = (tmp_path / "docs" / "performance.md").read_text()
    assert "### a job" in text
    assert "| peer | 1.000 |  | 2.00 | 1.5 |" in text
    assert "of the largest bound (limit 3: kept)" in text
    assert "### 1000" not in text
    assert (tmp_path / "docs" / "performance.png").stat().st_size > 10_000
    assert max(map(len, text.splitlines())) <= 100


def test_bandwidth_by_size():
    results = [
        Result("", {OURS: 2e-6}, {}, size=1000, traffic=28_000),
        Result("", {OURS: 1e-6}, {}, size=10, traffic=280),
    ]
    assert document.bandwidths(results) == {OURS: [(10, 0.28), (1000, 14.0)]}


def test_all_loops_of_the_demo_find_the_same_weights(monkeypatch):
    monkeypatch.setattr(demo, "STEPS", 5)
    pictures, labels = demo._generated()
    job = demo.Job(pictures[:500], labels[:500])
    ours = job.ours(gw.rules.sgd(lr=demo.LR))()
    np.testing.assert_allclose(ours, job.by_hand(), atol=1e-6)
    assert abs(ours).max() > 0.01


def test_what_the_machine_code_is_measured_by(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(fused, "LISTS", {"two small ones": [3, 5]})
    monkeypatch.setattr(fused, "NOISY", 64)
    monkeypatch.setattr(fused, "SIZES", [10])
    monkeypatch.setattr(ops, "LARGE", 8192)
    for contest in fused.contests():
        assert measure(contest, rounds=1).seconds.keys() >= {OURS, "limit"}
    chain = ops._chain()
    assert set(chain.bounds) < measure(chain, rounds=1).seconds.keys()
