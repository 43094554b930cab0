"""Two real processes."""

import pytest
import torch

from feedline.pipelines.probes import all_reduce


def test_gloo_is_measured_with_two_processes_and_the_models_gradients(subject, named):
    found = named(all_reduce.probe(subject(model=torch.nn.Linear(1000, 100))))

    rows = [one for name, one in found.items() if name.startswith("all_reduce/gloo")]
    assert [one.settings["bytes"] for one in rows] == [1 << 20, 25 << 20, 4 * 100_100]
    assert all(
        one.value and one.settings["ranks"] == 2 and one.settings["bus_bytes_per_s"] == one.value
        for one in rows
    ), rows


def test_of_many_gradients_only_as_much_is_sent_as_a_message_needs(subject, named, monkeypatch):
    monkeypatch.setattr(all_reduce, "_MAX_MESSAGE", 2 << 20)
    monkeypatch.setattr(all_reduce, "_MESSAGE_SIZES", (1 << 20,))

    found = named(all_reduce._backend("gloo", 2, subject(model=torch.nn.Linear(1000, 1000))))

    sent = found["all_reduce/gloo 2 MiB of the model's gradients"]
    assert sent.value and sent.settings["bytes"] == 2 << 20
    assert sent.settings["gradient_bytes"] == 4 * 1_001_000


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.device_count() > 1, reason="there are two GPUs or more"
)
def test_nccl_says_what_it_needs(subject, named, monkeypatch):
    monkeypatch.setattr(all_reduce, "_measure_all_reduce", lambda *_: {})
    monkeypatch.setattr(all_reduce, "_MESSAGE_SIZES", ())

    assert "needs two GPUs" in named(all_reduce.probe(subject()))["all_reduce/nccl"].why


def test_a_backend_that_is_not_there_is_a_row(subject, named):
    rows = named(all_reduce._backend("no-such-backend", 2, subject()))

    assert all(one.value is None and "no-such-backend" in one.why.lower() for one in rows.values())
