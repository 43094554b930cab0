"""JSON of a run folder that was edited is refused in one line that names the file and the member."""

import json

import pytest

from feedline.__main__ import main
from feedline.analysis.explain import reports_of_run
from feedline.profiler.ceilings import Ceilings
from feedline.profiler.errors import CeilingsDamaged, RunDamaged
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.trainings import open_run

MEMBERS = {
    "place.rank": "0",
    "place.world_size": 0,
    "place.local_rank": 10**12,
    "versions.torch": 2,
    "machine.cpus": [1],
    "machine.effective_cpus": -1,
    "hooks.0.why": None,
    "hooks.0.attached": "yes",
    "loaders.0.num_workers": "2",
    "loaders.0.kind": 7,
    "training.optimizers.0.groups.0.lr": "0.1",
    "training.norms": [],
    "training.updates": -1,
    "anchors.0.perf_counter_ns": 1.5,
    "anchors.0.time_ns": 2**63 - 1,
    "exit_code": "0",
    "pid": -1,
    "notes.0": 3,
    "command.0": {},
}


def put(data, where: str, value) -> None:
    """Set a member at ``a.0.b``."""
    *keys, last = where.split(".")
    for key in keys:
        data = data[int(key) if isinstance(data, list) else key]
    if isinstance(data, list):
        data[int(last) : int(last) + 1] = [value]
    else:
        data[last] = value


@pytest.mark.parametrize("where", MEMBERS)
def test_an_edited_member_of_the_manifest_is_named(finished, where, capsys):
    file = finished / "rank0" / "manifest.json"
    data = json.loads(file.read_text())
    put(data, where, MEMBERS[where])
    file.write_text(json.dumps(data))

    code = main(["report", str(finished)])

    said = capsys.readouterr().err
    path = "".join(
        f"[{key}]" if key == "0" else f".{key}"
        for key in where.replace("versions.torch", "versions[...]").split(".")
    )
    path = (
        path.replace(".versions.[...]", ".versions[...]").replace("[0]", "[...]")
        if "optimizers" in where
        else path
    )
    assert (code, said.count("\n")) == (65, 1)
    assert str(file) in said and "$." + where.split(".")[0] in said, (path, said)


STRANGE = {
    "digits without end": '{"schema_version": ' + "9" * 10_000 + "}",
    "more than 64 bits": '{"schema_version": 1, "pid": 36893488147419103232}',
    "brackets without end": "[" * 1_000_000,
    "braces without end": '{"a":' * 500_000,
    "a name that is there twice": '{"schema_version": 1, "schema_version": 1}',
    "not a number": '{"schema_version": NaN}',
    "bytes that are not UTF-8": b"\xff\xfe{",
    "nothing": "",
}


@pytest.mark.parametrize("case", STRANGE)
def test_json_that_no_writer_makes_is_refused(finished, case):
    text = STRANGE[case]
    (finished / "rank0" / "manifest.json").write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )

    with pytest.raises(RunDamaged, match="rank0/manifest.json cannot be read"):
        Manifest.read(finished / "rank0")


def test_edited_gauges_cost_the_gauges_only(finished):
    legend = finished / "rank0" / "gauges.json"
    legend.write_text(json.dumps({**json.loads(legend.read_text()), "gauges": [["cpu/machine"]]}))

    seen = reports_of_run.recorded_report(open_run(finished))

    assert seen.gauges == []
    assert any("gauges.json" in note and "$.gauges[0]" in note for note in seen.notes)


@pytest.mark.parametrize(
    ("member", "value"),
    [("value", -1.0), ("value", "fast"), ("low", float("nan")), ("settings", {"batch_size": 0})],
)
def test_edited_ceilings_are_named(finished, member, value):
    file = finished / "ceilings.json"
    data = json.loads(file.read_text())
    data["ceilings"][1][member] = value
    file.write_text(json.dumps(data))

    with pytest.raises(
        CeilingsDamaged,
        match=rf"ceilings\.json is not a ceilings file \(.*\$\.ceilings\[\d?(\.\.\.)?\]\.{member}",
    ):
        Ceilings.read(file, in_run=True)


def test_a_run_without_its_anchors_is_shown(finished):
    file = finished / "rank0" / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "anchors": []}))

    assert reports_of_run.recorded_report(open_run(finished)).run.state == "finished"
