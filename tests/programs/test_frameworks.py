"""Programs whose loop belongs to a library."""

import importlib.util
from typing import Any

import pytest


def needs(module: str, package: str, extra: str = "programs") -> None:
    """Skip where a library is not installed, without importing it: that takes seconds."""
    parent = module.rpartition(".")[0]
    if (parent and importlib.util.find_spec(parent) is None) or importlib.util.find_spec(
        module
    ) is None:
        pytest.skip(f"{package} is not installed (pip install {package}, or feedline[{extra}])")


def made_at(loader: dict[str, Any]) -> tuple[str, str | None]:
    """File and line of the program's call, and the library that it calls if it does not make the
    loader itself.
    """
    return loader["settings"]["made_at"].rpartition("/")[2], loader["settings"].get("made_by")


def test_a_lightning_trainer(record):
    needs("pytorch_lightning", "pytorch-lightning")

    done = record("lightning_trainer.py", like_plain=True)

    done.check_split(steps=10, samples=160)
    done.check_workers(processes=2, batches=20, samples=160)
    assert done.roles() == [("DataLoader", "evaluation", 8), ("DataLoader", "training", 20)]
    assert done.report["step"]["evaluation_s"] > 0
    assert [made_at(loader) for loader in done.report["loaders"]] == [
        ("lightning_trainer.py:42", None),
        ("lightning_trainer.py:41", None),
    ]


def test_a_transformers_trainer(record):
    needs("transformers", "transformers")
    needs("accelerate", "accelerate")

    done = record("transformers_trainer.py", like_plain=True, varies="_runtime")

    done.check_split(steps=6, samples=48)
    done.check_workers(processes=2, batches=12, samples=48)
    assert done.roles() == [
        ("DataLoader", "training", 12),
        ("DataLoader", "evaluation", 2),
        ("DataLoader", "evaluation", 2),
    ]
    assert done.report["step"]["evaluation_s"] > 0
    assert made_at(done.report["loaders"][0]) == ("transformers_trainer.py:38", "transformers")


@pytest.mark.long
def test_a_timm_model_with_timms_loader(record, photographs):
    needs("timm", "timm")

    done = record("timm_loader.py", photographs, like_plain=True)

    done.check_split(steps=8, samples=32, hooks=["PIL.Image"])
    assert done.roles() == [("MultiEpochsDataLoader", "training", 8)]
    assert made_at(done.report["loaders"][0]) == ("timm_loader.py:15", "timm")
    workers = done.report["workers"]
    assert workers["processes"] == 2
    assert 8 <= workers["batches"] <= 12  # it goes on fetching ahead when the training is over
    assert {"read", "decode", "augment", "collate"} <= set(workers["per_sample"])


@pytest.mark.parametrize(
    ("iterator", "kind"),
    [("generic", "DALIGenericIterator"), ("classification", "DALIClassificationIterator")],
)
def test_a_dali_pipeline_on_the_cpu(record, photographs, iterator, kind):
    needs("nvidia.dali", "DALI", "dali")

    done = record("dali.py", photographs, iterator)

    done.check_split(steps=10, samples=36, hooks=["DALI"])
    assert done.roles() == [(kind, "training", 10)]
    assert [loader["epochs"] for loader in done.report["loaders"]] == [2]  # auto_reset begins one
    assert done.report["workers"] is None  # what DALI's threads do cannot be seen from outside


@pytest.mark.parametrize(
    ("library", "module", "hook", "kind"),
    [
        ("nodes", "torchdata.nodes", "torchdata.nodes", "Loader"),
        ("grain", "grain", "Grain", "IterDataset"),
        pytest.param("torchrl", "torchrl", "torchrl", "ReplayBuffer", marks=pytest.mark.long),
        pytest.param("ray", "ray", "Ray Data", "iter_torch_batches", marks=pytest.mark.long),
    ],
)
def test_batches_of_other_loaders_are_counted(record, library, module, hook, kind):
    needs(module, library)

    done = record("other_loaders.py", library, like_plain=True, varies="INFO")

    done.check_split(steps=10, samples=80, hooks=[hook])
    (loader,) = done.report["loaders"]
    assert (loader["kind"], loader["role"], loader["batches"], loader["samples"]) == (
        kind,
        "training",
        10,
        80,
    )


@pytest.mark.parametrize(
    ("way", "roles"),
    [
        ("once", [("Loader", "evaluation", 2), ("Loader", "training", 30)]),
        ("each", [("Loader", "training", 30), ("Loader", "evaluation", 6)]),
    ],
)
def test_loaders_that_go_away_and_others_like_them_are_not_mixed_up(record, way, roles):
    needs("torchdata.nodes", "torchdata")

    done = record("nodes_made_anew.py", way)

    assert done.roles() == roles
