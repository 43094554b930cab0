"""Two real recordings: a slow Python function and its repair, with another program beside the
repaired run only.
"""

import json
import subprocess
import sys
from pathlib import Path

from feedline.__main__ import main

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "programs" / "loaded_training.py"


def test_a_repaired_function_is_named_although_more_load_ran_beside_it(tmp_path, warm_python):
    def record(name: str, samples: str) -> None:
        words = [
            "run",
            "-q",
            "-o",
            name,
            str(PROGRAM),
            "--samples",
            samples,
            "--workers",
            "1",
            "--steps",
            "60",
        ]
        done = warm_python.run(
            "-m", "feedline", *words, folder=tmp_path, environment={"OMP_NUM_THREADS": "1"}
        )
        assert done.returncode == 0, done.stderr

    record("slow", "loops")
    load = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        record("repaired", "arrays")
    finally:
        load.kill()
        load.wait()

    assert (
        main(
            [
                "diff",
                "-q",
                str(tmp_path / "slow"),
                str(tmp_path / "repaired"),
                "--json",
                str(tmp_path / "diff.json"),
            ]
        )
        == 0
    )

    told = json.loads((tmp_path / "diff.json").read_text())
    step, dataset = (
        next(one for one in told["quantities"] if one["id"] == id)
        for id in ("step/mean", "sample/dataset")
    )
    assert dataset["outcome"] == "changed" and dataset["after"] < dataset["before"] / 2
    if (
        step["after"] < step["before"]
    ):  # else the load beside B really made it slower, which may be said
        assert (
            told["cause"] == "sample/dataset"
            and "the machine explains it" not in told["conclusion"]
        )
