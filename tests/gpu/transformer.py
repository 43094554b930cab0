"""Train a small transformer to predict the next byte of text files, as anyone would write it. Knows
nothing of feedline.

python tests/gpu/transformer.py README.md docs --steps 200
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH = 256


class Texts(Dataset):
    """Windows of bytes, each with the same window moved by one."""

    def __init__(self, paths: list[Path], count: int) -> None:
        files = sorted(
            file for path in paths for file in (path.rglob("*.md") if path.is_dir() else [path])
        )
        self.text = torch.frombuffer(
            bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8
        ).long()
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        begin = torch.randint(len(self.text) - LENGTH - 1, ()).item()
        window = self.text[begin : begin + LENGTH + 1]
        return window[:-1], window[1:]


class Transformer(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers, self.head = (
            nn.TransformerEncoder(layer, depth, enable_nested_tensor=False),
            nn.Linear(width, 256),
        )
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.bytes(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.layers(embedded, mask=self.mask, is_causal=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path, nargs="+", help="files, or folders with *.md")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(
        Texts(args.texts, args.steps * args.batch_size),
        args.batch_size,
        num_workers=2,
        pin_memory=args.device == "cuda",
    )
    model = Transformer(args.width, args.depth).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    begin = time.perf_counter()
    for inputs, targets in loader:
        inputs, targets = (
            inputs.to(args.device, non_blocking=True),
            targets.to(args.device, non_blocking=True),
        )
        with torch.autocast(args.device, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(
        f"loss {loss.item():.3f}, "
        f"{args.steps * args.batch_size / (time.perf_counter() - begin):,.0f} samples/s"
    )


if __name__ == "__main__":
    main()
