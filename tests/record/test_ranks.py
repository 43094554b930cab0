"""Which rank of which launch: from variables, and from real launches."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from warm_python import WarmPython

from feedline.profiler import ranks
from feedline.profiler.ranks import RankPlace, place

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "GROUP_RANK": "2",
    "TORCHELASTIC_RUN_ID": "none",
}
SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "77",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "4",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "6",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
}

SHOW = """
import dataclasses, json, os, sys
from feedline.profiler import ranks
line = json.dumps([dataclasses.asdict(ranks.place()), ranks.launch_id(), ranks.started_at()])
with open(os.path.join(sys.argv[1], str(os.getpid())), "w") as file:
    file.write(line)
"""


def test_torchrun_is_read_with_its_restart_count():
    assert place({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"}) == RankPlace(
        5, 1, 8, 2, 2, "torchrun"
    )


def test_slurm_is_read_inside_a_step():
    assert place({**SLURM, "SLURM_RESTART_COUNT": "1"}) == RankPlace(3, 1, 4, 1, 1, "slurm")


def test_a_slurm_step_smaller_than_its_job_gives_the_size_of_the_step():
    assert place({**SLURM, "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "4"}).world_size == 4


def test_a_batch_script_without_srun_is_one_process():
    batch = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}
    assert place(batch) == RankPlace()


def test_open_mpi_is_read_and_its_group_is_unknown():
    assert place(OPEN_MPI) == RankPlace(6, 2, 8, None, 0, "mpi")


def test_hydra_is_read():
    assert place({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}) == RankPlace(
        1, 1, 2, None, 0, "mpi"
    )


def test_torchrun_goes_before_the_slurm_step_that_it_runs_in():
    assert place({**SLURM, **TORCHRUN}).launcher == "torchrun"


def test_mpirun_goes_before_the_slurm_step_of_its_daemon():
    assert place({**SLURM, **OPEN_MPI}) == place(OPEN_MPI)


def test_rank_variables_that_copy_slurm_leave_it_slurm():
    assert place({**SLURM, "RANK": "3", "WORLD_SIZE": "4"}) == place(SLURM)


def test_rank_variables_that_differ_from_slurm_go_before_it():
    assert place({**SLURM, "RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}) == RankPlace(
        9, 1, 16, None, 0, "env"
    )


def test_without_a_launcher_there_is_one_rank():
    assert place({}) == RankPlace(0, 0, 1, 0, 0, "none")


@pytest.mark.parametrize("rank", ["", "one", "-1", "8", "1.5", "²", "9" * 5000])
def test_a_malformed_rank_counts_as_not_set(rank):
    assert place({**TORCHRUN, "RANK": rank}) == RankPlace()


def test_a_malformed_torchrun_lets_slurm_be_read():
    assert place({**SLURM, **TORCHRUN, "WORLD_SIZE": "many"}).launcher == "slurm"


names = st.sampled_from(sorted({*TORCHRUN, *SLURM, *OPEN_MPI, "PMI_RANK", "PMI_SIZE"}))


@given(
    st.dictionaries(
        names, st.one_of(st.text("0123456789 -+._/é²\n", max_size=5), st.integers(-3, 12).map(str))
    )
)
def test_any_environment_gives_a_rank_inside_its_world_and_a_launch_id_that_can_name_a_file(
    environ,
):
    found = place(environ)

    assert 0 <= found.rank < found.world_size
    assert re.fullmatch(r"[\w.-]+", ranks.launch_id(environ))
    assert re.fullmatch(r"\d{4}-\d{6}", ranks.started_at(environ))


def shown(folder: pathlib.Path) -> list:
    """What SHOW wrote, sorted by rank."""
    return sorted(
        (json.loads(file.read_text()) for file in folder.iterdir()),
        key=lambda entry: entry[0]["rank"],
    )


def launch(
    folder: pathlib.Path, *command: str | pathlib.Path, warm: WarmPython | None = None
) -> list:
    folder.mkdir()
    clean = {
        name: value
        for name, value in os.environ.items()
        if not re.match("TORCHELASTIC|SLURM|OMPI|PMI|RANK$|WORLD_SIZE$", name)
    }
    environment = {**clean, "OMP_NUM_THREADS": "1"}
    if warm is None:
        subprocess.run(
            [*command, folder], check=True, timeout=100, env=environment, capture_output=True
        )
    else:
        warm.run(*command, folder, folder=folder.parent, environment=environment).check_returncode()
    return shown(folder)


def test_the_ranks_of_a_torchrun_share_id_and_time_through_a_wrapper_script_and_the_next_launch_differs(
    tmp_path, warm_python
):
    script, wrapper = tmp_path / "show.py", tmp_path / "wrapper.sh"
    script.write_text(SHOW)
    wrapper.write_text(f'#!/bin/sh\n{sys.executable} {script} "$1"\nexit 0\n')
    wrapper.chmod(0o755)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    plain = launch(tmp_path / "plain", *torchrun, script, warm=warm_python)
    wrapped = launch(tmp_path / "wrapped", *torchrun, "--no-python", wrapper, warm=warm_python)

    for entries in (plain, wrapped):
        assert [entry[0] for entry in entries] == [
            {
                "rank": r,
                "local_rank": r,
                "world_size": 2,
                "group_rank": 0,
                "restart": 0,
                "launcher": "torchrun",
            }
            for r in (0, 1)
        ]
        assert entries[0][1:] == entries[1][1:]
    assert plain[0][1] != wrapped[0][1]


def test_the_tasks_of_a_slurm_step_share_id_and_time(tmp_path):
    script, step = tmp_path / "show.py", tmp_path / "step.sh"
    script.write_text(SHOW)
    export = " ".join(f"{name}={value}" for name, value in SLURM.items() if name != "SLURM_PROCID")
    tasks = "\n".join(
        f'{export} SLURM_PROCID={r} {sys.executable} {script} "$1"; sleep 1.1' for r in (0, 1)
    )
    step.write_text(tasks)

    entries = launch(tmp_path / "out", "sh", step)

    assert [entry[0]["rank"] for entry in entries] == [0, 1]
    assert [entry[1] for entry in entries] == ["slurm-77-0"] * 2
    assert entries[0][2] == entries[1][2]


def test_ranks_that_a_script_numbers_by_hand_share_id_and_time(tmp_path):
    script, starter = tmp_path / "show.py", tmp_path / "start.sh"
    script.write_text(SHOW)
    ranks_of_it = "\n".join(
        f'RANK={r} WORLD_SIZE=2 {sys.executable} {script} "$1" &' for r in (0, 1)
    )
    starter.write_text(ranks_of_it + "\nwait\n")

    entries = launch(tmp_path / "out", "sh", starter)

    assert [(entry[0]["rank"], entry[0]["launcher"]) for entry in entries] == [
        (0, "env"),
        (1, "env"),
    ]
    assert entries[0][1:] == entries[1][1:]


def test_a_requeued_slurm_job_is_another_launch():
    assert ranks.launch_id(SLURM) != ranks.launch_id({**SLURM, "SLURM_RESTART_COUNT": "1"})


def test_two_processes_without_a_launcher_are_two_launches(tmp_path):
    script = tmp_path / "show.py"
    script.write_text(SHOW)

    first, second = (launch(tmp_path / name, sys.executable, script) for name in ("one", "two"))

    assert first[0][1] != second[0][1]


def test_a_launch_is_dated_when_its_process_started():
    began = psutil.Process().create_time()

    assert ranks.started_at({}) in {
        time.strftime("%m%d-%H%M%S", time.localtime(began + off)) for off in (-1, 0, 1)
    }
