"""Mean and variance of a layer's input, over any number of batches."""

import torch


class Moments:
    """Mean and summed squared deviation per channel, merged batch by batch (Chan, Golub, LeVeque 1983), in float64.

    Attributes:
        count: float64 [], values per channel.
        mean, squares: float64 [channels].
    """

    def __init__(self, channels: int, device: torch.device) -> None:
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.mean, self.squares = torch.zeros(2, channels, dtype=torch.float64, device=device)

    def add(self, x: torch.Tensor) -> None:
        """Add a batch. ``x``: [batch, channels, ...]."""
        x = x.detach()
        exact = x if x.dtype == torch.float64 else x.float()
        variance, mean = torch.var_mean(exact, [0, *range(2, x.ndim)], correction=0)
        count = x.numel() // x.shape[1]
        self.merge(torch.tensor(float(count), dtype=torch.float64, device=x.device), mean.double(), variance.double() * count)

    def merge(self, count: torch.Tensor, mean: torch.Tensor, squares: torch.Tensor) -> None:
        total = self.count + count
        apart = mean - self.mean
        self.mean = self.mean + apart * (count / total)
        self.squares = self.squares + squares + apart**2 * (self.count * count / total)
        self.count = total

    def over_ranks(self) -> "Moments":
        """The moments of all ranks together; every rank must call it."""
        mine = torch.cat([self.count[None], self.mean, self.squares])
        ranks = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(ranks, mine)
        whole = Moments(len(self.mean), mine.device)
        for theirs in ranks:
            if theirs[0] > 0:
                whole.merge(theirs[0], *theirs[1:].chunk(2))
        return whole
