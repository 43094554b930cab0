"""The JSON report and its published schema."""

import dataclasses
import json
import math
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from report.made_up import VARIANTS, nasty, report, unmeasured
from report_docs import publish
from report_docs.fields import FIELDS, TYPES
from report_docs.schema import schema
from warm_python import WarmPython

from feedline.analysis.report.json_report import key_of, render

DOCS = Path(__file__).resolve().parents[2] / "docs"
TRAINING = """
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
for inputs, targets in DataLoader(data, batch_size=8, num_workers=1):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
"""
RENEW = "renew it: scripts/docs-fields"
VALIDATOR = jsonschema.Draft202012Validator(
    json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8"))
)


def test_the_published_schema_is_the_one_that_the_dataclasses_give() -> None:
    assert (DOCS / "report.schema.json").read_text(encoding="utf-8") == publish.schema_text(), RENEW


def test_the_published_tables_are_those_that_the_dataclasses_give() -> None:
    text = (DOCS / "report.md").read_text(encoding="utf-8")

    assert text == publish.renew_below(text, publish.tables()), RENEW


def test_every_field_is_documented_and_no_other() -> None:
    keys = {cls.__name__: [key_of(field) for field in dataclasses.fields(cls)] for cls in TYPES}

    assert keys == {name: list(fields) for name, fields in FIELDS.items()}
    assert keys.keys() == {"Report", *schema()["$defs"]}


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("variant", VARIANTS)
def test_reports_fulfil_the_schema(variant: str) -> None:
    VALIDATOR.validate(json.loads(render(VARIANTS[variant]())))


def test_the_json_of_a_recorded_training_fulfils_the_schema(
    tmp_path: Path, warm_python: WarmPython
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)

    done = warm_python.run(
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        "run",
        "--json",
        "report.json",
        "train.py",
        folder=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "report.json").read_text())
    VALIDATOR.validate(made)
    assert made["throughput"]["steps"] == 8
    assert math.isclose(sum(made["step"]["stages"].values()), made["step"]["mean_s"], rel_tol=0.01)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda made: made.pop("verdict"), "'verdict' is a required property"),
        (
            lambda made: made["findings"][0].update(severity="fatal"),
            "'fatal' is not one of ['info', 'low', 'high']",
        ),
        (
            lambda made: made["step"]["stages"].update(wait="93 ms"),
            "'93 ms' is not of type 'number', 'null'",
        ),
        (lambda made: made["workers"]["sample_wall_histogram"][0].append(1), "is too long"),
        (lambda made: made.update(schema_version=4), "3 was expected"),
    ],
)
def test_what_is_no_report_does_not_fulfil_the_schema(change, where: str) -> None:
    made = json.loads(render(report()))
    change(made)

    assert where in jsonschema.exceptions.best_match(VALIDATOR.iter_errors(made)).message


def test_the_json_is_the_dataclass_field_by_field() -> None:
    made = dataclasses.asdict(report())
    made["workers"]["sample_wall_histogram"] = [
        list(pair) for pair in made["workers"]["sample_wall_histogram"]
    ]
    for finding in made["findings"]:  # keys of the format, which stay
        for field, key in (("rule_id", "cause"), ("message", "says"), ("how_to_check", "disproof")):
            finding[key] = finding.pop(field)
    for one in (made["roofline"], *made["roofline"]["roofs"]):
        one["says"] = one.pop("message")
    for one in (made["together"], *(finding["predicted"] for finding in made["findings"])):
        if one is not None:
            one["from"], one["to"] = one.pop("before"), one.pop("after")

    assert json.loads(render(report())) == made


def test_floats_that_are_no_number_become_null() -> None:
    made = json.loads(render(unmeasured()))

    assert made["gauges"][0]["values"][0] is None
    assert made["findings"][0]["evidence"][0]["value"] is None


def test_numpy_scalars_and_objects_of_the_program_can_be_written() -> None:
    settings = {
        "num_workers": np.int64(4),
        "p": np.float32(0.5),
        "bad": np.float64(math.nan),
        "pin": np.bool_(True),
        "sampler": object,
    }
    made = dataclasses.replace(
        report(), loaders=[dataclasses.replace(report().loaders[0], settings=settings)]
    )

    written = json.loads(render(made))["loaders"][0]["settings"]

    assert written == {
        "num_workers": 4,
        "p": 0.5,
        "bad": None,
        "pin": True,
        "sampler": "<class 'object'>",
    }


def test_a_path_that_is_not_utf_8_is_written_in_a_way_that_strict_readers_take() -> None:
    assert json.loads(render(nasty()))["run"]["name"] == r"undecodable\udcff"


def test_stages_sum_to_the_mean_step() -> None:
    made = json.loads(render(report()))

    assert math.isclose(sum(made["step"]["stages"].values()), made["step"]["mean_s"], rel_tol=0.01)
