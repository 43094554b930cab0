"""Sees that every figure of a report of traces is of one basis, the steps: each is worked out again
from the bar of the mean step.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from truth import one_number
from truth.costs import PART, whose

from feedline.__main__ import main
from feedline.analysis.text.formatting import percent, share


def reported(
    paths: list[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], str, str]:
    """The report of traces: as JSON, the short one of the terminal, and the full one."""
    assert main(["ingest", *paths, "-o", str(place / "run"), "--processes", "1"]) == 0
    short = capsys.readouterr().out
    one_number.check_run(place / "run")
    assert main(["report", str(place / "run"), "--full"]) == 0
    return json.loads((place / "run" / "report.json").read_text()), short, capsys.readouterr().out


def one_basis(report: dict[str, Any], short: str, full: str) -> None:
    """Fail where two figures of a report cannot be of the same steps."""
    shown = min(report["ranks"], key=int)
    for own in report["ranks"].values():
        device_of(own)
        if own["comm"] is not None:
            unmet = own["comm"]["exposed_wait_s"] is None
            assert unmet == any("do not fit together" in note for note in report["notes"])
            for part, stage in (
                ("exposed_wait_s", "waiting_for_rank"),
                ("exposed_transfer_s", "exposed_transfer"),
            ):
                assert (own["comm"][part] or 0.0) == pytest.approx(
                    own["stages"][stage], rel=1e-6, abs=1e-9
                )
    assert report["step"]["mean_s"] == pytest.approx(report["ranks"][shown]["mean_s"])
    for stage, part_s in report["step"]["stages"].items():
        assert part_s == pytest.approx(report["ranks"][shown]["stages"][stage])
    for finding in report["findings"]:
        if finding["cause"] in PART:
            finding_of(report, finding)
    pace, steps = report["throughput"], report["ranks"][shown]["steps"]
    assert pace["steps"] == steps
    assert pace["steps_per_s"] == (pytest.approx(1 / report["step"]["mean_s"]) if steps else None)
    told = " ".join(full.split())
    assert f"Figures cover {report['traces']['basis']}." in told
    assert ("per step" in short) <= bool(steps) and ("Mean step" in full) == bool(steps)
    told_once(report, shown, told)


def device_of(own: dict[str, Any]) -> None:
    """Device and input of a rank against its bar."""
    gpu, stages, mean_s = own["gpu"], own["stages"], own["mean_s"]

    def pct(*names: str) -> Any:
        return pytest.approx(100 * sum(stages[name] for name in names) / mean_s, abs=1e-6)

    if gpu["span_s"] is not None:
        assert gpu["span_s"] == pytest.approx(max(own["steps"], 1) * mean_s)
        assert gpu["compute_pct"] == pct("compute")
        assert gpu["other_pct"] == pct("waiting_for_rank", "exposed_transfer", "exposed_copy")
        assert gpu["idle_pct"] == pct("input", "synchronisation", "host_launch", "unexplained")
        assert gpu["exposed_comm_pct"] == pct("waiting_for_rank", "exposed_transfer")
        assert gpu["exposed_comm_s"] == pytest.approx(gpu["exposed_comm_pct"] / 100 * gpu["span_s"])
    if own["input"]["stall_pct"] is not None:
        assert own["input"]["stall_pct"] == pct("input")
        assert own["input"]["speedup_ceiling"] == pytest.approx(mean_s / (mean_s - stages["input"]))


def finding_of(report: dict[str, Any], finding: dict[str, Any]) -> None:
    """A finding's cost, evidence and sentence against the bar of the rank that it names, or of the
    one that is shown.
    """
    own = report["ranks"][whose(report, finding)]
    part_s = own["stages"][PART[finding["cause"]]]
    wanted_s = pytest.approx(part_s) if own["steps"] and finding["severity"] != "info" else None
    assert finding["cost_s"] == wanted_s, finding["says"]
    assert finding["evidence"][0]["value"] == pytest.approx(part_s / own["mean_s"]), finding["says"]
    words = "\n".join([finding["says"], *finding["more"]])
    assert percent(part_s / own["mean_s"]) in words
    for of in re.findall(r"(\d[\d.]*) % of the (step|trace)", finding["says"]):
        assert of == (
            percent(part_s / own["mean_s"]).split(" ")[0],
            "step" if own["steps"] else "trace",
        )


def told_once(report: dict[str, Any], shown: str, told: str) -> None:
    """The tables of the shown rank against its bar: kernels never ran longer than the device was
    busy, on one stream.
    """
    own, traces = report["ranks"][shown], report["traces"]
    if own["gpu"]["span_s"] is not None:
        busy_s = (own["gpu"]["compute_pct"] + own["gpu"]["other_pct"]) / 100 * own["gpu"]["span_s"]
        for row in traces["kernels"]:
            assert row["busy_share"] <= 1 and row["busy_share"] <= row["total_s"] / busy_s * (
                1 + 1e-9
            )
        computing = sum(row["total_s"] for row in traces["kernels"] if not row["communication"])
        if len(traces["kernels"]) < 100:  # else some rows are left out
            assert computing >= own["stages"]["compute"] * max(own["steps"], 1) * (1 - 1e-9)
    for stage, part_s in own["stages"].items():
        assert not part_s or f"{stage} " in told and share(part_s / own["mean_s"]) in told
