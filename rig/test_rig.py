"""The rig's own judgement: what it must fail on, it fails on."""

import json

import pytest

import compare
import compose_check
import host
import run


def results(path, outcomes=None, numbers=None):
    base = {"outcomes": {"a": {"code": "OK", "reason": None, "message": "x"}}, "numbers": {"n": {"shape": [2], "data": [1.0, 2.0]}}}
    base["outcomes"].update(outcomes or {})
    base["numbers"].update(numbers or {})
    path.write_text(json.dumps(base))
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"outcomes": {"a": {"code": "INTERNAL", "reason": None, "message": "x"}}}, "INTERNAL"),
        ({"outcomes": {"a": {"code": "OK", "reason": "OTHER", "message": "x"}}}, "OTHER"),
        ({"outcomes": {"b": {"code": "OK", "reason": None, "message": ""}}}, "only the embedded"),
        ({"numbers": {"n": {"shape": [2], "data": [1.0, 2.0001]}}}, "2.0001"),
        ({"numbers": {"n": {"shape": [1, 2], "data": [1.0, 2.0]}}}, "shapes"),
        ({"numbers": {"n": {"shape": [2], "data": [1.0, float("nan")]}}}, "nan"),
    ],
)
def test_compare_sees_a_difference(tmp_path, change, says):
    lines = compare.differences(results(tmp_path / "r.json"), results(tmp_path / "e.json", **change))
    assert len(lines) == 1 and says in lines[0]


def test_compare_lets_texts_and_last_digits_differ(tmp_path):
    other = results(tmp_path / "e.json", {"a": {"code": "OK", "reason": None, "message": "other"}}, {"n": {"shape": [2], "data": [1.000009, 2.0]}})
    assert compare.differences(results(tmp_path / "r.json"), other) == []


def test_compare_of_nothing_is_no_agreement(tmp_path):
    path = tmp_path / "empty.json"
    path.write_text('{"outcomes": {}, "numbers": {}}')
    assert compare.differences(path, path)


@pytest.mark.parametrize(
    ("text", "code", "counts"),
    [
        ("3 passed in 1.00s", 0, (3, 0, 0)),
        ("1 failed, 2 passed, 4 skipped in 1.00s", 1, (2, 1, 4)),
        ("1 failed, 2 passed, 1 error in 1.00s", 1, (2, 2, 0)),
        ("no tests ran in 0.01s", 5, (0, 1, 0)),
        ("", -9, (0, 1, 0)),
    ],
)
def test_the_tally_counts_what_pytest_says(text, code, counts):
    t = run.Tally()
    t.pytest("suite", code, text)
    assert (t.passed, t.failed, t.skipped) == counts


@pytest.mark.parametrize(
    ("path", "out"),
    [("rig/run.py", True), ("pkg/x/x_test.go", True), ("pkg/x/testdata/a/b.json", True), ("pkg/x/x.go", False),
     ("triton-models/fraud/1/model.onnx", False), ("README.md", True), ("pkg/rig/x.go", False)],
)  # fmt: skip
def test_what_the_build_context_leaves_out(path, out):
    assert compose_check.ignored(path, ["rig", "**/*_test.go", "**/testdata", "**/*.md"]) is out


def test_the_compose_file_is_held_to_the_users(monkeypatch, tmp_path):
    text = (compose_check.ROOT / "docker-compose.yml").read_text()
    monkeypatch.setattr(compose_check, "ROOT", tmp_path)
    for old, new in (("8080:8080", "8080:8081"), ("--log-verbose=1", "--log-verbose=2"), ("TRITON_GRPC_HOST", "TRITON"), ("/scripts/lua:ro", "/lua:ro")):
        assert old in text
        (tmp_path / "docker-compose.yml").write_text(text.replace(old, new))
        with pytest.raises(compose_check.Failed):
            compose_check.compose()


@pytest.mark.parametrize(
    ("stands", "good", "runs", "well"),
    [(0.0, 1, 1, True), (0.0, 2, 1, False), (1.0, 2, 2, True), (1.0, 9, host.PLAYS, False)],
)
def test_only_what_fails_on_a_machine_that_stalls_is_run_again(monkeypatch, stands, good, runs, well):
    """stands: for how long the machine does; good: the run that goes well."""
    monkeypatch.setattr(host.Host, "seen", lambda self: (self._stop.set(), stands)[1])
    played = []

    def play():
        played.append(1)
        return len(played) == good

    assert host.again(play, "x") is well and len(played) == runs


@pytest.mark.parametrize(
    ("name", "failure", "runs"),
    [("real", "test", 1), ("real", "start", host.PLAYS), ("load", "check", host.PLAYS), ("models", "check", 1), ("real", None, 1)],
)
def test_of_a_suite_only_the_tests_that_failed_are_run_again(monkeypatch, name, failure, runs):
    monkeypatch.setattr(host.Host, "seen", lambda self: (self._stop.set(), 1.0)[1])
    count = []

    def part(tally):
        count.append(1)
        if failure == "start":
            raise run.Failed("it does not start")
        if failure == "check":
            tally.add("a check", False)
        else:
            tally.pytest("suite", 1 if failure else 0, "== 1 failed, 2 passed in 3s ==" if failure else "== 2 passed in 3s ==")

    before = run.Tally()
    after = run.played(name, part, before)
    assert len(count) == runs and after.failed == (failure is not None) and before.failed == 0


def test_a_clock_that_stands_still_is_seen(monkeypatch):
    watch = host.Host()
    ahead = 5.0
    real = host.time.monotonic
    monkeypatch.setattr(host.time, "monotonic", lambda: real() + ahead)
    watch._stop.wait(5 * host.TICK)
    assert watch.seen() >= ahead - 1


def test_ports_of_servers_are_none_that_callers_are_given():
    ports = [p for _ in range(10) for p in run.free_ports(20)]
    assert len(set(ports)) == 200 and all(p in range(22_000, 32_000) for p in ports)
