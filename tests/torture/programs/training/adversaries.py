"""Two networks are trained alternately, one against the other, by two optimizers."""

import torch
from tiny import digest, loader, network

maker, judge = torch.nn.Linear(4, 4), network()
of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
for x in loader():
    of_judge.zero_grad()
    fake = maker(torch.randn_like(x))
    (judge(fake.detach()).mean() - judge(x).mean()).backward()
    of_judge.step()
    of_maker.zero_grad()
    (-judge(fake).mean()).backward()
    of_maker.step()
digest(maker, judge)
