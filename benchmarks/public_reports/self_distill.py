"""A student learns from a teacher that follows it slowly."""

import copy
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TWIN = "--twin" in sys.argv


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def update_teacher(student, teacher, momentum):
    if TWIN:
        with torch.no_grad():
            torch._foreach_lerp_(teacher_list, student_list, 1 - momentum)
        return
    for name, _ in student.named_parameters():
        source = dict(student.named_parameters())[name]
        target = dict(teacher.named_parameters())[name]
        target.data = target.data * momentum + source.data * (1 - momentum)


student = nn.Sequential(*[Block(48) for _ in range(24)])
teacher = copy.deepcopy(student).requires_grad_(False)
student_list, teacher_list = list(student.parameters()), list(teacher.parameters())
optimizer = torch.optim.SGD(student.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(4096, 48)), batch_size=64, shuffle=True)
end = time.time() + 12
while time.time() < end:
    for (views,) in loader:
        with torch.no_grad():
            goal = teacher(views)
        loss = ((student(views + 0.1 * torch.randn_like(views)) - goal) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_teacher(student, teacher, 0.996)
        if time.time() > end:
            break
print("loss", loss.item())
