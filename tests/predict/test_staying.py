"""Workers that stay keep the malloc with which they were forked; those of each pass inherit what
the main process has learned since.
"""

import os
import subprocess
import sys

import pytest
from needs import GLIBC

from feedline.analysis.explain.reports_of_run import training_input
from feedline.analysis.ledger.finding import Change, Factor
from feedline.analysis.predict.of_run import recorded_input
from feedline.analysis.predict.recorded_input import RecordedInput
from feedline.analysis.predict.replay_of import _with_change
from feedline.profiler.store.trainings import open_run

PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Wasteful(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        pieces = [bytes([index + 1]) * 6_000_000 for _ in range(5)]  # new memory
        return torch.tensor([float(piece[0]) for piece in pieces])

loader, model = DataLoader(Wasteful(), batch_size=2, num_workers=1, persistent_workers=sys.argv[1] == "stay"), torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
for _ in range(3):
    for rows in loader:
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()
    memory = b"x" * 31_000_000
    del memory  # malloc learns from its size: it keeps twice as much from now on
"""
LABELS = """
import mmap
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Labels(Dataset):
    labels = [float(number) for number in range(2_000_000)]  # to look at one writes its reference count: the worker copies its page

    def __len__(self):
        return 48

    def __getitem__(self, index):
        if sys.argv[1] == "sorted":
            pages = 40 * (50 - index)  # of new memory, fewer and fewer
            with mmap.mmap(-1, pages * 4096) as memory:
                for page in range(pages):
                    memory[page * 4096] = 1
                return torch.tensor(list(memory[:5])).float()
        sum(range(100_000))
        where = torch.randint(len(self.labels), (600,)).tolist()
        return torch.tensor([self.labels[place] for place in where][:5])

loader, model = DataLoader(Labels(), batch_size=4, num_workers=1), torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-12)
for _ in range(4):
    for rows in loader:
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()
"""
STAY = Change(settings={"persistent_workers": True})


def recorded(folder, how: str, program: str = PROGRAM) -> RecordedInput:
    (folder / "train.py").write_text(program)
    command = [
        sys.executable,
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        folder / how,
        folder / "train.py",
        how,
    ]
    subprocess.run(
        command,
        env={name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")},
        check=True,
    )
    found = training_input(open_run(folder / how))
    assert found is not None
    read = recorded_input(found.shown, found.facts)
    assert isinstance(read, RecordedInput), read
    return read


@GLIBC
@pytest.mark.long
def test_batches_of_workers_that_stay_take_what_those_of_the_first_pass_took(tmp_path):
    new, stay = recorded(tmp_path, "new"), recorded(tmp_path, "stay")

    assert stay.staying == 0
    assert new.staying > 2e-3
    predicted, unchanged = _with_change(new, STAY), _with_change(new, Change())
    assert predicted.batches[-1].cpu_s == pytest.approx(
        unchanged.batches[-1].cpu_s + new.staying * new.batches[-1].threads
    )
    assert unchanged.batches[-1].cpu_s < predicted.batches[-1].cpu_s < 2 * stay.batches[-1].cpu_s
    halved = _with_change(new, Change(STAY.settings, {"dataset": Factor(cpu=0.5)}))
    assert halved.batches[-1].cpu_s < 0.8 * predicted.batches[-1].cpu_s


@pytest.mark.long
def test_workers_that_stay_copy_the_pages_of_a_shared_list_only_once(tmp_path):
    new = recorded(tmp_path, "new", LABELS)

    assert -0.5 * new.batches[-1].cpu_s < new.staying < -0.1e-3
    assert _with_change(new, STAY).batches[-1].cpu_s < new.batches[-1].cpu_s


@pytest.mark.long
def test_page_faults_of_batches_that_are_sorted_by_size_go_on(tmp_path):
    assert recorded(tmp_path, "sorted", LABELS).staying >= 0
