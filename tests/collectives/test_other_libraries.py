"""Libraries whose communication is not seen are named, unless they were imported by a program that
has nobody to talk to.
"""

import pytest

from feedline.profiler.taps.collectives import groups

ALL = set(groups._UNSEEN_LIBRARIES)


@pytest.mark.parametrize(
    ("variables", "watched"),
    [
        ({}, ALL - {"mpi4py.MPI", "cupy.cuda.nccl"}),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ALL),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, ALL),
    ],
    ids=["alone", "two ranks", "under mpirun"],
)
def test_which_imports_are_told(monkeypatch, variables, watched):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    asked, told = {}, []

    groups.name_when_imported(asked.__setitem__, lambda *words: told.append(words))
    asked["horovod.torch"]()

    assert set(asked) == watched
    ((name, works, why),) = told
    assert (name, works) == ("communication by Horovod", False)
    assert "not recorded, it has queues and threads of its own" in why
