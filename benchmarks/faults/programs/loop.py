"""A perceptron whose loop does something else than train: it compiles again and again, saves, evaluates,
writes, draws, or updates many small tensors one by one.

loop.py --save-every 5 --save-mb 60
"""

import json
import os
import tempfile
import time
from argparse import Namespace

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from training import Timers, loader, options

WIDTH = 256


class Rows(Dataset):
    """Rows of numbers, the same ones every seven."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((WIDTH,), index % 7 / 7), index % 10


class Many(nn.Module):
    """A perceptron with many small tensors beside it."""

    def __init__(self, tensors):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 10))
        self.scales = nn.ParameterList(nn.Parameter(torch.zeros(4)) for _ in range(tensors))

    def forward(self, rows, scale):
        added = torch.cat(list(self.scales)).sum() if len(self.scales) else 0.0
        return self.layers(rows) * scale + added


def arguments():
    parser = options(__doc__)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--lengths", type=int, default=1, help="of batches, in turns")
    parser.add_argument("--scales", choices=("", "numbers", "tensors"), default="")
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--save-mb", type=float, default=1.0)
    parser.add_argument("--tensors", type=int, default=0)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--clip", choices=("", "items"), default="")
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--keep-predictions", action="store_true", help="measured over all of them")
    parser.add_argument("--stall-every", type=int, default=0, help="a log is flushed")
    parser.add_argument("--stall-ms", type=float, default=300.0, help="what that takes")
    parser.add_argument("--draw-every", type=int, default=0, help="a figure, with matplotlib")
    parser.add_argument("--track-every", type=int, default=0, help="with TensorBoard")
    parser.add_argument("--print-every", type=int, default=0, help="all parameters")
    parser.add_argument("--held", type=int, default=20, help="batches of an evaluation")
    parser.add_argument("--held-batch", type=int, help="of an evaluation, if it is another")
    parser.add_argument("--write-every", type=int, default=0, help="all losses so far, to the disk")
    return parser.parse_args()


def clip_by_items(model):
    for parameter in model.parameters():
        norm = parameter.grad.norm().item()
        if norm > 1.0:
            parameter.grad.mul_(1.0 / norm)


def evaluate(model, batches):
    model.eval()
    with torch.no_grad():
        for rows, _ in batches:
            model(rows, 1.0)
    model.train()


def accuracy(predicted, truth):
    return (torch.cat(predicted).argmax(1) == torch.cat(truth)).float().mean().item()


def write(losses, folder):
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump([{"step": step, "loss": loss} for step, loss in enumerate(losses)], file)
        os.fsync(file.fileno())


def flush_log(losses, folder, ms):
    with open(os.path.join(folder, "log.txt"), "a") as file:
        file.writelines(f"{loss}\n" for loss in losses[-100:])
    time.sleep(ms / 1e3)  # a server that is far away


def draw(losses, folder):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.plot(losses)
    pyplot.savefig(os.path.join(folder, "losses.png"))
    pyplot.close()


def track(writer, model, loss, step):
    writer.add_scalar("loss", loss, step)
    for name, parameter in model.named_parameters():
        writer.add_histogram(name, parameter, step)
    writer.flush()


def print_all(model, step):
    for name, parameter in model.named_parameters():
        print(step, name, parameter.detach().flatten()[:300].tolist())


def summary_writer(folder):
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder)


def main():
    given = arguments()
    model = Many(given.tensors)
    run = torch.compile(model, dynamic=False, backend="aot_eager") if given.compiled else model
    choices = {"fused": True} if given.fused else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, **choices)
    if given.step_ms:
        model.register_forward_hook(lambda *_: time.sleep(given.step_ms / 1e3))
    batches, timers = loader(Rows(given.batch * given.steps), given), Timers()
    of_held = {**vars(given), "batch": given.held_batch or given.batch}
    held = loader(Rows(given.batch * given.held), Namespace(**of_held))
    state = torch.zeros(int(given.save_mb * 250_000))
    predicted, truth, losses = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        writer = summary_writer(folder) if given.track_every else None
        for step, (rows, labels) in enumerate(timers.over(batches), 1):
            short = step % given.lengths
            rows, labels = rows[short:], labels[short:]
            scale = (
                float(step)
                if given.scales == "numbers"
                else torch.tensor(float(step))
                if given.scales
                else 1.0
            )
            scores = run(rows, scale)
            loss = cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            if given.clip == "items":
                clip_by_items(model)
            optimizer.step()
            losses.append(loss.item())
            if given.save_every and step % given.save_every == 0:
                torch.save({"model": model.state_dict(), "state": state}, f"{folder}/last.pt")
            if given.evaluate_every and step % given.evaluate_every == 0:
                evaluate(model, held)
            if given.keep_predictions:
                predicted.append(scores.detach())
                truth.append(labels)
                accuracy(predicted, truth)
            if given.write_every and step % given.write_every == 0:
                write(losses, folder)
            if given.stall_every and step % given.stall_every == 0:
                flush_log(losses, folder, given.stall_ms)
            if given.draw_every and step % given.draw_every == 0:
                draw(losses, folder)
            if given.track_every and step % given.track_every == 0:
                track(writer, model, losses[-1], step)
            if given.print_every and step % given.print_every == 0:
                print_all(model, step)
        if writer is not None:
            writer.close()
    timers.write(given.batch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
