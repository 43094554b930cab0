"""A small language model, of which the norms of weights and gradients are recorded."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(500, 48)
        layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.out = nn.Linear(48, 500)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.out(self.layers(self.embedding(tokens), mask, is_causal=True))


def metrics(optimizer, model):
    found = {}
    for name, weight in model.named_parameters():
        for kind, tensor in [
            ("weight", weight.detach()),
            ("gradient", weight.grad),
            ("average", optimizer.state[weight]["exp_avg"]),
        ]:
            found[f"{kind}/{name}.norm"] = tensor.norm().item()
            found[f"{kind}/{name}.min"] = tensor.min().item()
            found[f"{kind}/{name}.max"] = tensor.max().item()
    return found


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
texts = TensorDataset(torch.randint(0, 500, (4000, 33)))
end, step, found = time.time() + 12, 0, {}
while time.time() < end:
    for (tokens,) in DataLoader(texts, batch_size=8, shuffle=True):
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if not TWIN or step % 100 == 0:
            found = metrics(optimizer, model)
        if time.time() > end:
            break
print("loss", loss.item(), len(found), "norms")
