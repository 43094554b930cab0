"""Complex parameters and losses of complex numbers."""

import torch
from tiny import digest

net = torch.nn.Linear(4, 2, dtype=torch.complex64)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    torch.fft.fft(net(torch.randn(4, 4, dtype=torch.complex64))).abs().sum().backward()
    optimizer.step()
digest(*(torch.view_as_real(p) for p in net.parameters()))
