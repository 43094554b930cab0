"""Energies of molecules from descriptors of their atoms, which a batch has one after another."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv


class Molecules(Dataset):
    def __init__(self):
        self.atoms = torch.randn(64 * 500, 96)

    def __len__(self):
        return 500

    def __getitem__(self, index):
        return self.atoms[index * 64 : (index + 1) * 64], float(index % 5)


def factorize(samples):
    if TWIN:
        atoms = torch.cat([molecule for molecule, _ in samples])
    else:
        atoms = torch.empty(0, 96)
        for molecule, _ in samples:
            for atom in molecule:
                atoms = torch.cat([atoms, atom[None]])
    return atoms, torch.tensor([energy for _, energy in samples])


model = nn.Sequential(nn.Linear(96, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
loader = DataLoader(Molecules(), batch_size=16, shuffle=True, collate_fn=factorize)
end = time.time() + 12
while time.time() < end:
    for atoms, energies in loader:
        found = model(atoms).reshape(len(energies), -1).sum(1)
        loss = nn.functional.mse_loss(found, energies)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > end:
            break
print("loss", loss.item())
