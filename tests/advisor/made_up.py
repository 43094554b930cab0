"""Made-up recorded runs: a healthy training, of which each test spoils one thing."""

from dataclasses import replace

import numpy as np

from feedline.analysis.convergence.training_record import Curve, GradientNorms, TrainingRecord

EPOCH = 4096
SETUP = {
    "optimizers": [
        {
            "kind": "SGD",
            "module": "torch.optim.sgd",
            "groups": [
                {
                    "lr": 0.08,
                    "weight_decay": 5e-4,
                    "momentum": 0.9,
                    "tensors": 11,
                    "vectors": 7,
                    "elements": 5000,
                }
            ],
        }
    ],
    "schedulers": [{"kind": "CosineAnnealingLR", "horizon": 192, "steps": 192}],
    "norms": {"BatchNorm1d": 3},
    "samplers": [
        {
            "kind": "DistributedSampler",
            "shuffles": True,
            "epochs": 12,
            "distinct": 12,
            "samples": 2048,
            "of": 4096,
        }
    ],
}


def curve(values, batch, updates=None):
    """Evenly over the updates of a run."""
    values = np.asarray(values, float)
    at = (
        np.arange(len(values))
        if updates is None
        else np.linspace(0, updates, len(values)).round().astype(int)
    )
    return Curve(at.astype(np.int64), at * float(batch), at * 0.01, values)


def loss(end, updates, start=2.3, noise=0.05, seed=0):
    """From ``start`` to ``end``, with the noise of single batches."""
    at = np.linspace(0, 1, updates)
    return (
        end
        + (start - end) * np.exp(-6 * at)
        + noise * np.random.default_rng(seed).standard_normal(updates)
    )


def gradients(updates, batch, parts=2, scale=100.0, size=400, seed=0, how="ddp"):
    """Norms of gradients with a known noise scale, constant over the training; part gradients of
    all parts seen.
    """
    part = batch / parts
    noise = np.random.default_rng(seed).standard_normal((updates, parts, size)) / np.sqrt(
        size * part
    )
    found = 1 / np.sqrt(size * scale) + noise
    at = np.arange(updates)
    small, big = (found**2).sum(2).mean(1), (found.mean(1) ** 2).sum(1)
    return GradientNorms(
        at,
        at * float(batch),
        at * 0.01,
        small,
        big,
        np.full(updates, part),
        np.full(updates, float(batch)),
        how,
        parts,
    )


def run(
    name="run",
    *,
    batch=256,
    train=0.2,
    held=0.4,
    epochs=12,
    scale=100.0,
    ranks=2,
    seed=0,
    setup=None,
    curves=None,
    fixes="",
    norms=True,
):
    """A run of a dataset of 4,096 samples.

    Args:
        train, held: training and evaluation loss at its end. scale: gradient noise scale. setup:
            keys to change. curves: curves to add.
    """
    updates = epochs * EPOCH // batch
    steps = {"schedulers": [{"kind": "CosineAnnealingLR", "horizon": updates, "steps": updates}]}
    shown = {
        "train loss": curve(loss(train, updates, seed=seed), batch),
        "eval loss": curve(loss(held, epochs, noise=0.0), batch, updates),
        "lr": curve(0.08 * (1 + np.cos(np.pi * np.linspace(0, 1, updates))) / 2, batch),
    }
    return TrainingRecord(
        name=name,
        curves={**shown, **(curves or {})},
        norms=gradients(updates, batch, max(ranks, 2), scale, seed=seed) if norms else None,
        why="" if norms else "one rank and one micro-batch an update",
        setup={**SETUP, **steps, **(setup or {})},
        ranks=ranks,
        batch=float(batch),
        samples=float(epochs * EPOCH),
        samples_per_epoch=float(EPOCH),
        updates=updates,
        step_s=0.01,
        ended=True,
        fixes=fixes,
    )


def with_curve(recorded, name, values):
    """The same run with another curve."""
    return replace(
        recorded, curves={**recorded.curves, name: curve(values, recorded.batch, recorded.updates)}
    )


def with_norms(recorded, **columns):
    """The same run with other columns of its norms."""
    return replace(recorded, norms=replace(recorded.norms, **columns))
