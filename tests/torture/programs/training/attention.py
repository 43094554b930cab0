"""Transformer layers with padding masks, trained and then evaluated on torch's fast path."""

import torch
from tiny import digest

net = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
optimizer = torch.optim.AdamW(net.parameters())
mask = torch.arange(5)[None] >= torch.tensor([[5], [3]])
for _ in range(5):
    optimizer.zero_grad()
    net(torch.randn(2, 5, 8), src_key_padding_mask=mask).square().mean().backward()
    optimizer.step()
net.eval()
with torch.no_grad():
    print(net(torch.ones(2, 5, 8), src_key_padding_mask=mask).sum().item())
digest(net)
