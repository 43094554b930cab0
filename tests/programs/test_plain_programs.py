"""Loops that people write themselves, with stock torch."""

import pytest


@pytest.mark.long
def test_a_compiled_model_stays_one_graph(record):
    done = record("compiled.py", "aot_eager", like_plain=True)

    done.check_split(steps=12, samples=96)
    done.check_workers(processes=1, batches=12, samples=96)
    assert "graphs 1\n" in done.said


def test_two_optimizers_that_take_turns_make_one_step(record):
    done = record("gan.py", like_plain=True)

    done.check_split(steps=16, samples=128)
    done.check_workers(processes=2, batches=16, samples=128)
    assert done.stages["loss"] > 0


def test_lbfgs_calls_its_closure_within_one_step(record):
    done = record("lbfgs.py")

    done.check_split(steps=6, samples=192)
    done.check_workers(processes=1, batches=6, samples=192)


def test_evaluation_through_the_training_loader_is_no_part_of_the_steps(record):
    done = record("evaluates_training_loader.py")

    done.check_split(steps=12, samples=96)
    done.check_workers(processes=2, batches=30, samples=240)
    assert done.roles() == [("DataLoader", "training", 30)]
    assert done.report["step"]["evaluation_s"] > 0


def test_a_loader_made_anew_each_epoch_is_one_loader(record):
    done = record("new_loader_each_epoch.py")

    done.check_split(steps=18, samples=144)
    done.check_workers(processes=2, batches=18, samples=144)
    assert done.roles() == [("DataLoader", "training", 18), ("DataLoader", "evaluation", 6)]
    assert [(loader["epochs"], loader["objects"]) for loader in done.report["loaders"]] == [
        (3, 3),
        (3, 3),
    ]


def test_a_batch_that_was_fetched_ahead_and_never_trained_on_is_in_no_step(record):
    throughput = record("fetches_ahead.py").report["throughput"]

    assert (throughput["steps"], throughput["batch_size"]) == (8, 16)
    assert throughput["samples_per_s"] == pytest.approx(16 * throughput["steps_per_s"])


def test_a_training_without_a_loader_has_steps_all_the_same(record):
    done = record("no_loader.py")

    step = done.report["step"]
    assert done.report["throughput"]["steps"] == 20
    assert sum(step["stages"].values()) == pytest.approx(step["mean_s"], rel=0.01)
    assert min(step["stages"][stage] for stage in ("forward", "backward", "optimizer")) > 0
    assert done.report["workers"] is None


def test_every_kind_of_loader_is_split(record):
    kinds = ("iterable", "no_batching", "batch_sampler", "out_of_order", "persistent", "spawned")

    done = record("loader_kinds.py", *kinds)

    assert done.said == "epoch 0 samples 48\nepoch 1 samples 48\n" * len(kinds)
    done.check_split(steps=12 * len(kinds), samples=96 * len(kinds))
    done.check_workers(processes=2 * len(kinds), batches=12 * len(kinds), samples=96 * len(kinds))
    assert done.roles() == [("DataLoader", "training", 12)] * len(kinds)
    assert [(loader["samples"], loader["objects"]) for loader in done.report["loaders"]] == [
        (96, 1)
    ] * len(kinds)
    assert all(
        loader["pickle_bytes"] > 0 and loader["first_batch_s"] > 0
        for loader in done.report["loaders"]
    )


def test_a_loader_without_workers_is_split(record):
    done = record("loader_kinds.py", "none")

    done.check_split(steps=12, samples=96)
    done.check_workers(processes=0, batches=12, samples=96)
    assert done.stages["dataset"] > 0 and done.stages["collate"] > 0


def test_torchdatas_stateful_loader_is_split(record):
    done = record("loader_kinds.py", "stateful")

    done.check_split(steps=12, samples=96, hooks=["StatefulDataLoader"])
    done.check_workers(processes=2, batches=12, samples=96)
    assert done.roles() == [("StatefulDataLoader", "training", 12)]


def test_a_loader_that_ended_keeps_no_pipe_open(record):
    done = record("loader_without_garbage_collection.py")

    assert done.said == "loader False, iterator False, queue False\n"
