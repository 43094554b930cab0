"""The user's model: FLOP, phases, what it cannot do, and peaks."""

import pytest
import torch
from torch import nn
from torchvision import transforms

from feedline.pipelines.probes import compute
from feedline.pipelines.probes.probe_rounds import CannotMeasure
from feedline.pipelines.probes.training_step import Step, _any_loss, cached_batch
from feedline.pipelines.translate.recipe import read_recipe

OWN = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    monkeypatch.setattr(compute, "_MATRIX_SIZES", (64,))


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))


def test_flop_are_those_of_forward_and_backward_of_one_sample():
    step = Step.of(linear(), torch.zeros(7, 3, 8, 8), "cpu")

    assert (
        compute._flop_per_sample(step) == 2 * (192 * 5) * 2
    )  # the product, and the gradient of its weights


def test_the_model_is_measured_in_parts_and_its_mfu_follows(subject, named):
    found = named(compute.probe(subject(model=linear(), transform=OWN, recipe=read_recipe(OWN))))

    model = found["compute/model"]
    assert {"compute/forward", "compute/backward", "compute/optimizer"} <= {
        name for name, one in found.items() if one.value
    }
    assert model.settings["batch"] == [4, 3, 8, 8] and model.settings["device"] == "cpu"
    assert "4 of the user's images" in model.source
    assert model.settings["mfu"] == pytest.approx(3840 * model.value / model.settings["peak_flops"])
    assert model.settings["peak_flops"] == found["compute/matmul float32"].high
    assert "measured here" in model.settings["peak_source"]


def test_the_parameters_are_the_same_afterwards(subject):
    model = linear()
    before = [one.detach().clone() for one in model.parameters()]

    list(compute.probe(subject(model=model, recipe=read_recipe(OWN))))

    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before))


def test_a_model_that_does_not_take_the_batch_is_a_row_that_says_its_shape(subject, named):
    found = named(compute.probe(subject(model=nn.Linear(5, 5), recipe=read_recipe(OWN))))

    assert (
        "could not train on a torch.float32 batch of shape [4, 3, 8, 8]"
        in found["compute/model"].why
    )
    assert found["compute/matmul float32"].value


def test_without_a_model_the_peaks_are_measured(subject, named):
    found = named(compute.probe(subject()))

    assert "--model" in found["compute/model"].why
    assert found["compute/matmul float32"].value


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(CannotMeasure, match="no parameter"):
        Step.of(nn.Flatten(), torch.zeros(1, 3, 8, 8), "cpu")


def test_images_of_several_sizes_become_noise_and_it_is_said(subject):
    as_they_are = transforms.Compose([transforms.ToTensor()])

    batch, made_of = cached_batch(
        subject(transform=as_they_are, recipe=read_recipe(as_they_are), batch_size=20)
    )

    assert batch.shape == (20, 3, 224, 224)
    assert made_of.startswith("noise, because the images cannot be batched")


def test_a_loss_is_made_of_whatever_a_model_gives():
    logits = torch.zeros(4, 8, requires_grad=True)

    assert _any_loss(logits).item() == pytest.approx(torch.tensor(8.0).log().item())
    assert _any_loss({"a": logits, "b": [torch.ones(3, requires_grad=True)]}).item() == 1.0
    with pytest.raises(CannotMeasure):
        _any_loss({"a": "text"})


@pytest.mark.parametrize(
    ("name", "dtype", "flops"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.5e12),
        ("NVIDIA H100 PCIe", "bfloat16", 756.5e12),
        ("NVIDIA H100 NVL", "float16", 835.5e12),
        ("NVIDIA H200", "float32", 67e12),
        ("NVIDIA A100-SXM4-80GB", "float32", 19.5e12),
        ("NVIDIA A10", "float16", 125e12),
        ("NVIDIA A10G", "float16", None),
        ("NVIDIA L4", "bfloat16", 121e12),
        ("NVIDIA L40S", "bfloat16", 362.05e12),
        ("Tesla T4", "bfloat16", None),
        ("Tesla V100-SXM2-16GB", "float16", 125e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "float16", None),
        ("a GPU of next year", "float16", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "float16", None),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "bfloat16", None),
        ("GRID A100-10C", "float16", None),
        ("GRID A100-1-5C", "float16", None),
        ("NVIDIA A10-24Q", "float16", None),
        ("NVIDIA A100-SXM4-40GB", "float16", 312e12),
        ("Tesla V100-PCIE-16GB", "float16", 112e12),
    ],
)
def test_the_peak_is_that_of_the_very_gpu(name, dtype, flops):
    found = compute._gpu_peak(name, dtype)

    assert found.flops == flops
    assert flops is None or found.source.startswith("https://")


def test_tf32_counts_for_float32_only_where_torch_may_use_it():
    assert compute._gpu_peak("NVIDIA A100-SXM4-80GB", "float32", tf32=True).flops == 156e12
    assert compute._gpu_peak("Tesla T4", "float32", tf32=True).flops == 8.1e12


def test_a_product_does_the_flop_that_it_says():
    assert compute._matrix_product(32, torch.float32, "cpu").run() == 2 * 32**3
