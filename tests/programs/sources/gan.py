"""A GAN: two models, two optimizers that take turns within each batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(torch.randn(64, 16)), batch_size=8, shuffle=True, drop_last=True, num_workers=2)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))
    discriminator = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    criterion = nn.BCEWithLogitsLoss()
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
    for epoch in range(2):
        for (real,) in loader:
            fake = generator(torch.randn(8, 4))
            optimizer_d.zero_grad()
            criterion(discriminator(real), ones).backward()
            criterion(discriminator(fake.detach()), zeros).backward()
            optimizer_d.step()
            optimizer_g.zero_grad()
            loss = criterion(discriminator(fake), ones)
            loss.backward()
            optimizer_g.step()
        print("epoch", epoch, f"{loss.item():.4f}")
