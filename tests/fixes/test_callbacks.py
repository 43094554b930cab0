"""The callbacks in trainings that Lightning and transformers run."""

import importlib.util
import warnings
from collections import UserDict

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from feedline.convergence.callbacks import (
    Fixes,
    _AppliedFixes,
    lightning_callback,
    transformers_callback,
)
from feedline.convergence.fixes.ghost_bn import GhostBatchNorm1d


def needs(module, package):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{package} is not installed (pip install feedline[programs])")


@pytest.fixture
def others_may_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.long
@pytest.mark.usefixtures("others_may_warn")
def test_a_lightning_training_warms_up_with_ghosts_and_noise_and_resumes(tmp_path):
    needs("pytorch_lightning", "pytorch-lightning")
    import pytorch_lightning as pl

    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
            self.rates, self.between = [], []

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            x, y = batch
            return functional.cross_entropy(self(x), y)

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
            return [optimizer], [
                {
                    "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
                    "interval": "step",
                }
            ]

        def on_train_start(self):
            self.optimizers().optimizer.register_step_pre_hook(
                lambda o, *_: self.rates.append(o.param_groups[0]["lr"])
            )

        def on_train_batch_end(self, *_):
            self.between.append(self.optimizers().param_groups[0]["lr"])

    def trainer(epochs, callback):
        quiet = {
            "accelerator": "cpu",
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        return pl.Trainer(
            max_epochs=epochs,
            callbacks=[callback],
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            **quiet,
        )

    def made():
        return lightning_callback(warmup=40, gradient_noise=0.5, ghost_bn=4)

    loader = DataLoader(TensorDataset(torch.randn(22, 4), torch.randint(0, 3, (22,))), batch_size=8)
    net, callback = Classifier(), made()
    first = trainer(1, callback)
    first.fit(net, loader)
    first.save_checkpoint(tmp_path / "one.ckpt")
    again, resumed = Classifier(), made()
    trainer(2, resumed).fit(again, loader, ckpt_path=tmp_path / "one.ckpt")

    assert isinstance(net.net[1], GhostBatchNorm1d)
    assert net.net[1].num_batches_tracked == 6
    assert net.rates == pytest.approx([8 / 40, 16 / 40, 0.5 * 22 / 40])
    assert net.between == pytest.approx([1, 0.5, 0.5])
    assert again.rates == pytest.approx([0.5 * 30 / 40, 0.25 * 38 / 40, 0.25])
    assert callback.applied.outputs == 3
    assert torch.equal(
        *(
            each.applied.noise.state_dict()["generator"]
            for each in (continued(callback, [8, 8, 6]), resumed)
        )
    )
    assert not net._forward_hooks


def continued(callback, batches):
    for batch in batches:
        callback.applied.noise(torch.ones(batch, requires_grad=True))
    return callback


def transformers_trainer(folder, interrupted_at=None):
    """Four steps of six samples each, with a checkpoint after the second, and the rates of all."""
    needs("transformers", "transformers")
    needs("accelerate", "accelerate")
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class Watch(TrainerCallback):
        def __init__(self):
            self.rates, self.hook, self.interrupted_at = [], None, interrupted_at

        def on_train_begin(self, *_, **__):
            self.hook = self.hook and self.hook.remove()

        def on_step_begin(
            self, args, state, control, optimizer=None, **_
        ):  # after every callback has begun, whatever their order
            if self.hook is None:
                self.hook = inside(optimizer).register_step_pre_hook(
                    lambda o, *_: self.rates.append(o.param_groups[0]["lr"])
                )

        def on_step_end(self, args, state, control, **_):
            if state.global_step == self.interrupted_at:
                self.interrupted_at = None
                raise KeyboardInterrupt

    def inside(optimizer):
        return inside(optimizer.optimizer) if hasattr(optimizer, "optimizer") else optimizer

    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        max_steps=4,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=2,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.1,
        save_steps=2,
        disable_tqdm=True,
        report_to="none",
        restore_callback_states_from_checkpoint=True,
    )
    torch.manual_seed(0)
    size = {
        "vocab_size": 8,
        "n_positions": 4,
        "n_embd": 4,
        "n_layer": 1,
        "n_head": 1,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    tokens = torch.randint(0, 8, (24, 4), generator=torch.Generator().manual_seed(0))
    watch, data = Watch(), [{"input_ids": row, "labels": row} for row in tokens]
    callbacks = [transformers_callback(warmup=24, gradient_noise=0.5), watch]
    model = GPT2LMHeadModel(GPT2Config(**size))
    return Trainer(model, arguments, train_dataset=data, callbacks=callbacks), watch.rates


@pytest.mark.usefixtures("others_may_warn")
def test_a_transformers_training_warms_up_with_noise_and_resumes(tmp_path):
    def train(resume=None):
        trainer, rates = transformers_trainer(tmp_path / "out")
        trainer.train(resume_from_checkpoint=resume)
        return rates, trainer

    at_once, whole = train()
    rest, resumed = train(resume=str(tmp_path / "out" / "checkpoint-2"))

    assert at_once == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rest == pytest.approx([0.75, 1.0])
    states = [
        next(
            each.state() for each in trainer.callback_handler.callbacks if hasattr(each, "applied")
        )
        for trainer in (whole, resumed)
    ]
    assert states[0] == states[1]
    assert all(map(torch.equal, *([*trainer.model.parameters()] for trainer in (whole, resumed))))


@pytest.mark.usefixtures("others_may_warn")
@pytest.mark.parametrize("resumes", [False, True])
def test_a_transformers_training_goes_on_after_an_interrupt(tmp_path, resumes):
    """The Trainer keeps the optimizer, and ends nothing; it resumes with a copy of the callback."""
    trainer, rates = transformers_trainer(tmp_path / "out", interrupted_at=3)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    first = list(rates)
    rates.clear()
    trainer.train(
        resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2") if resumes else None
    )

    assert first == pytest.approx([0.25, 0.5, 0.75])
    assert rates == pytest.approx([0.75, 1.0] if resumes else [1.0] * 4)
    (applied,) = (
        each.applied for each in trainer.callback_handler.callbacks if hasattr(each, "applied")
    )
    assert applied.counted == (24 if resumes else 18 + 24)
    assert not trainer.model._forward_hooks and not trainer.model._forward_pre_hooks


def test_fixes_that_begin_again_replace_those_of_a_training_that_was_interrupted():
    model, rates = nn.Linear(2, 2), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    applied = _AppliedFixes(Fixes(warmup=100, gradient_noise=0.5))

    def interrupted():
        raise KeyboardInterrupt

    applied.begin(model, [optimizer])
    applied.count(torch.zeros(25, 2), ranks=1)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(interrupted)
    applied.begin(model, [optimizer])
    optimizer.register_step_pre_hook(lambda o, *_: rates.append(o.param_groups[0]["lr"]))
    optimizer.step()

    assert (rates, optimizer.param_groups[0]["lr"]) == ([0.25], 1.0)
    assert len(model._forward_hooks) == 1


def test_a_batch_of_any_kind_is_counted():
    applied = _AppliedFixes(Fixes(warmup=100))
    for batch in (
        torch.zeros(3, 2),
        (torch.zeros(4, 2), torch.zeros(4)),
        {"x": [torch.zeros(5)]},
        UserDict(x=torch.zeros(6, 2)),  # as a tokenizer's batches are
        {"text": "no tensor"},
        torch.zeros(()),
    ):
        applied.count(batch, ranks=2)

    assert applied.counted == 2 * (3 + 4 + 5 + 6)


def test_a_training_step_that_goes_around_the_model_is_told():
    applied = _AppliedFixes(Fixes(gradient_noise=0.5))
    applied.begin(nn.Linear(2, 2), [])

    with pytest.raises(ValueError, match="the training step has to call the model itself"):
        applied.check_outputs()


def test_a_model_without_batch_norm_is_told():
    with pytest.raises(ValueError, match="Linear has no batch norm"):
        _AppliedFixes(Fixes(ghost_bn=8)).norms(nn.Linear(2, 2))


def test_an_option_that_is_none_is_refused():
    with pytest.raises(TypeError, match="warm_up"):
        Fixes(warm_up=3)
