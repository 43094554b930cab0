"""``feedline whatif``: a prediction in a sentence and as JSON, or a refusal with its reason."""

import json
import re
from pathlib import Path

import pytest
import torch
from planted import photos
from traces.kineto_made import kineto

import feedline
from feedline.__main__ import main
from feedline.analysis.predict.limits import WhatIf
from feedline.cli.whatif.text import _next_lines
from feedline.pipelines.probes import decoders

KEYS = [
    "settings",
    "fix",
    "from",
    "to",
    "low",
    "high",
    "refused",
    "limit",
    "stages",
    "line",
    "remarks",
    "measured_interval",
]


def predicted(capsys, *words: object) -> tuple[int, dict]:
    """Exit code, and the JSON on standard output, which holds nothing else."""
    code = main(["whatif", *map(str, words), "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def refusal(capsys):
    """What the command says of a run and settings that it refuses."""

    def said(*words: object) -> dict:
        code, found = predicted(capsys, *words)
        assert code == 1 and (found["from"], found["to"], found["limit"], found["line"]) == (
            None,
            None,
            None,
            "",
        )
        return found["refused"]

    return said


def test_it_is_one_sentence_with_the_line_to_change_and_the_next_command(demo, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["whatif", str(demo), "--set", "num_workers=2"]) == 0

    said = capsys.readouterr().out
    sentence = re.search(
        r"^With num_workers=2: 81\.0 -> (\d+) samples/s \(([\d.]+) to ([\d.]+)\)\.\n  The CPUs "
        r"would then be the limit",
        said,
    )
    assert sentence is not None, said
    to, low, high = map(float, sentence.groups())
    assert 81 < low <= to <= high
    assert (
        "Change  DataLoader(..., num_workers=2)  # now 1, examples/train_imagefolder.py:27\n"
        in said
    )
    assert f"Verify  feedline verify {demo} --set num_workers=2 -- SCRIPT ARGS" in said


@pytest.mark.parametrize(
    ("fix", "proves"),
    [
        ("user_code", False),
        ("page_faults", True),
        ("epoch_restart", False),  # a loader that is made again: the program has to change
        ("busy_neighbors", False),
        ("cpu_saturated", False),
    ],
)
def test_only_a_fix_that_is_a_setting_has_a_command_that_proves_it(fix, proves):
    said = [field.text for field in _next_lines(WhatIf({}, fix=fix), Path("run"))]

    assert said == ([f"feedline verify run --fix {fix} -- SCRIPT ARGS"] if proves else [])


def test_settings_that_are_a_part_of_a_fix_only_do_not_prove_it():
    workers = {"num_workers": 2}

    assert not list(_next_lines(WhatIf(workers, fix="busy_neighbors"), Path("run")))
    assert list(_next_lines(WhatIf(workers, fix="too_few_workers"), Path("run")))


def test_the_json_says_the_same(demo, tmp_path, capsys):
    code, found = predicted(capsys, demo, "--set", "num_workers=2")

    assert code == 0 and list(found) == KEYS
    assert found["settings"] == {"num_workers": 2} and found["refused"] is None
    assert (
        found["from"] == pytest.approx(81.0, abs=0.1) and found["low"] < found["to"] < found["high"]
    )
    assert (
        main(
            [
                "whatif",
                str(demo),
                "--set",
                "num_workers=2",
                "--json",
                str(tmp_path / "said.json"),
                "-q",
            ]
        )
        == 0
    )
    assert json.loads((tmp_path / "said.json").read_text()) == found
    assert capsys.readouterr().out == ""


def test_more_cores_lift_what_the_cpus_limit(demo, capsys):
    _, few = predicted(capsys, demo, "--set", "num_workers=4,cores=2")
    _, many = predicted(capsys, demo, "--set", "num_workers=4", "--set", "cores=8")

    assert many["settings"] == {"num_workers": 4, "cores": 8.0}
    assert many["to"] > 1.2 * few["to"]
    assert many["line"].startswith("DataLoader(..., num_workers=4)")


def test_batches_out_of_order_come_with_a_remark(demo, capsys):
    _, found = predicted(capsys, demo, "--set", "in_order=false")

    assert found["remarks"] == [
        "in_order=False changes the order of batches, and so the course of the training from run "
        "to run."
    ]


def test_workers_that_may_not_fit_into_memory_come_with_a_remark(demo, capsys):
    _, fits = predicted(capsys, demo, "--workers", "2")
    _, found = predicted(capsys, demo, "--workers", "200")

    assert not any("memory" in remark for remark in fits["remarks"])
    (remark,) = [remark for remark in found["remarks"] if "memory" in remark]
    assert re.fullmatch(
        r"Its workers and their batches may take [\d.]+ GB of memory, and only [\d.]+ GB were free "
        r"for them\.",
        remark,
    )


@pytest.mark.parametrize(
    ("setting", "way_out"),
    [
        ("batch_size=64", "feedline verify RUN --set batch_size=VALUE"),
        ("pin_memory=true", "feedline verify RUN --set pin_memory=VALUE"),
        ("image_size=128", "resize a part of the dataset"),
        ("store=lmdb", "feedline pack"),
        ("device=cuda", "feedline run"),
        ("decode=turbo", "add --data DIR"),
        ("decode=pil", "this training decodes with Pillow already"),
    ],
)
def test_what_a_recording_does_not_hold_is_refused_with_the_way_out(
    setting, way_out, demo, refusal
):
    refused = refusal(demo, "--set", setting)

    assert refused["reason"] and way_out in refused["message"]
    assert setting in refused["message"]


def test_a_refusal_is_the_last_sentence_in_the_terminal(demo, capsys):
    assert main(["whatif", str(demo), "--set", "batch_size=64"]) == 1

    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(
        "No prediction: batch_size=64: the recording does not show"
    ) and said.endswith("that of the model alone.")


def test_the_fix_of_a_finding_is_predicted_as_the_report_does(demo, tmp_path, capsys):
    assert main(["report", str(demo), "-q", "-o", str(tmp_path / "report.json")]) == 0
    finding = json.loads((tmp_path / "report.json").read_text())["findings"][0]

    code, found = predicted(capsys, demo, "--fix", finding["cause"])

    assert code == 0 and finding["cause"] == found["fix"] == "too_few_workers"
    assert {key: found[key] for key in ("from", "to", "low", "high")} == finding["predicted"]
    assert found["settings"] == finding["settings"]
    assert found["line"] == f"{finding['fix']}, {finding['place']}; {finding['condition']}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to change: add --workers N, --set NAME=VALUE or --fix ID"),
        (
            ["--fix", "too_few_worker"],
            "this run has no such finding (did you mean too_few_workers?); its findings: "
            "too_few_workers",
        ),
        (
            ["--set", "num_workers=0,prefetch_factor=4"],
            "--set prefetch_factor=4: num_workers=0, and prefetch_factor needs workers",
        ),
        (
            ["--set", "num_workers=2", "--data", "."],
            "--data is only used to measure a decoder: add --set decode=NAME",
        ),
        (["--set", "decode=jpg"], "unknown decoder 'jpg'; decoders: Pillow, simplejpeg"),
    ],
)
def test_a_command_that_contradicts_itself_or_the_run_has_exit_code_2(words, message, demo, capsys):
    assert main(["whatif", str(demo), *words]) == 2

    assert message in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_not_found(tmp_path, capsys):
    assert main(["whatif", str(tmp_path / "nowhere"), "--set", "num_workers=2"]) == 66


def test_a_run_without_a_loader_is_refused(tmp_path, refusal):
    train(tmp_path / "run", trainings=1)

    assert refusal(tmp_path / "run", "--set", "num_workers=2")["reason"] == "no_loader"


def test_of_two_trainings_one_has_to_be_named(tmp_path, capsys):
    train(tmp_path / "run", trainings=2)

    assert main(["whatif", str(tmp_path / "run"), "--set", "num_workers=2"]) == 66
    assert (
        f"holds 2 training runs, made in sequence: name one of them ({tmp_path / 'run'}/parts/1 "
        f"to 2)" in capsys.readouterr().err
    )
    assert main(["whatif", str(tmp_path / "run" / "parts" / "2"), "--set", "num_workers=2"]) == 1


def test_a_trace_of_another_tool_is_refused(tmp_path, refusal):
    trace = kineto(tmp_path / "rank0.json", rank=0)
    assert main(["ingest", trace, "-q", "-o", str(tmp_path / "run")]) == 0

    refused = refusal(tmp_path / "run", "--set", "num_workers=2")

    assert refused["reason"] == "trace" and "feedline run" in refused["message"]


def test_a_decoder_is_measured_on_the_users_files(decode_bound, tmp_path, capsys):
    photos.write(tmp_path / "photos" / "cat", 640, 480, 4)

    code, found = predicted(
        capsys, decode_bound, "--set", "decode=turbo", "--data", tmp_path / "photos"
    )

    assert code == 0 and found["stages"]["decode"]["off_cpu"] == 1.0
    factor = found["stages"]["decode"]["cpu"]
    assert 0.1 < factor < 1.2
    assert found["low"] < found["to"] < found["high"]
    assert re.match(
        r"Measured on 4 files: Pillow decodes one in [\d.]+ [mµ]s of CPU time, simplejpeg in "
        r"[\d.]+ [mµ]s; pixels",
        found["remarks"][0],
    )


def test_the_spread_of_the_measurement_widens_the_interval(
    decode_bound, tmp_path, monkeypatch, capsys
):
    def measured(low, high):
        monkeypatch.setattr(
            decoders,
            "compare_decoders",
            lambda *_: decoders._DecoderComparison(50, 2e-3, 1e-3, low, high, 0.1),
        )
        return predicted(capsys, decode_bound, "--set", "decode=turbo", "--data", tmp_path)[1]

    sure, unsure = measured(0.5, 0.5), measured(0.3, 0.8)

    assert unsure["to"] == sure["to"] > sure["from"]
    assert unsure["low"] < sure["low"] and unsure["high"] > sure["high"]


def test_files_of_another_size_than_the_trainings_are_refused(decode_bound, tmp_path, refusal):
    photos.write(tmp_path / "photos" / "cat", 160, 120, 2)

    refused = refusal(decode_bound, "--set", "decode=turbo", "--data", tmp_path / "photos")

    assert (
        "these images have 0.0192 megapixels and the training decodes 0.325 per sample"
        in refused["message"]
    )


def train(run: Path, trainings: int) -> None:
    """Record trainings without a loader."""
    with feedline.record(run):
        for _ in range(trainings):
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(6):
                model(torch.ones(3, 2)).sum().backward()
                optimizer.step()
