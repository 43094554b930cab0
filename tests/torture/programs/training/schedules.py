"""Learning rates by OneCycleLR, ReduceLROnPlateau and a chain of schedules; param_groups are edited
by hand.
"""

from tiny import digest, loader, network, sgd, step
from torch.optim import lr_scheduler as schedules

net = network()
optimizer = sgd(net)
one = schedules.OneCycleLR(optimizer, max_lr=0.2, total_steps=8)
for x in loader():
    loss = step(net, optimizer, x)
    one.step()
    print(one.get_last_lr())
plateau = schedules.ReduceLROnPlateau(optimizer, patience=0, threshold=1.0)
chain = schedules.SequentialLR(
    optimizer, [schedules.ConstantLR(optimizer), schedules.CosineAnnealingLR(optimizer, 4)], [3]
)
for x in loader():
    step(net, optimizer, x)
    plateau.step(1.0)
    chain.step()
    optimizer.param_groups[0]["momentum"] *= 0.9
    print(optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"])
digest(net)
