"""Copies."""

import pytest
import torch

from feedline.pipelines.probes import device_copy


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    monkeypatch.setattr(device_copy, "_MEMORY_BYTES", 1 << 22)


def test_memory_is_copied(subject, named):
    found = named(device_copy.probe(subject()))

    assert found["memory/copy"].value and found["memory/copy"].unit == "B/s"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_pinning_and_copying_say_that_there_is_no_gpu(subject, named):
    found = named(device_copy.probe(subject()))

    assert found["pin"].why == found["copy"].why == "needs a CUDA device, and there is none"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_pinned_and_pageable_copies_of_every_size_are_measured(subject, named):
    found = named(device_copy.probe(subject()))

    assert {
        f"copy/{kind} {size} MiB" for kind in ("pinned", "pageable") for size in (1, 8, 32, 128)
    } <= set(found)
    assert all(one.value for one in found.values())
