"""CPU time of one update by torch's optimizers: tensor by tensor, with foreach, and fused.

OMP_NUM_THREADS=1 python benchmarks/fused_optimizers.py
"""

import time

import torch

SHAPES = ((2000, (4,)), (200, (64, 64)), (60, (512, 512)))
WAYS = ({"foreach": False}, {"foreach": True}, {"fused": True})
OPTIMIZERS = {"SGD": {"momentum": 0.9}, "AdamW": {}, "Adam": {}}
UPDATES = 5


def update_ms(name: str, number: int, shape: tuple[int, ...], how: dict[str, object]) -> float:
    """Return the CPU milliseconds of one update."""
    tensors = [torch.randn(shape, requires_grad=True) for _ in range(number)]
    for tensor in tensors:
        tensor.grad = torch.randn(shape)
    optimizer = getattr(torch.optim, name)(tensors, lr=1e-4, **how)
    for _ in range(2):
        optimizer.step()
    began = time.process_time()
    for _ in range(UPDATES):
        optimizer.step()
    return 1e3 * (time.process_time() - began) / UPDATES


def main() -> None:
    print("tensors x shape       optimizer   one by one   foreach     fused   ms")
    for number, shape in SHAPES:
        for name, more in OPTIMIZERS.items():
            took = [update_ms(name, number, shape, {**how, **more}) for how in WAYS]
            print(f"{f'{number} x {shape}':20}  {name:8}" + "".join(f"{ms:11.2f}" for ms in took))


if __name__ == "__main__":
    main()
