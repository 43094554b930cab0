"""Sparse gradients of an embedding, SparseAdam, and products with sparse matrices."""

import torch
from tiny import digest

table = torch.nn.Embedding(50, 4, sparse=True)
optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.01)
mix = torch.eye(6).to_sparse_csr()
for _ in range(6):
    optimizer.zero_grad()
    picked = table(torch.randint(50, (6,)))
    (mix @ picked + picked.to_sparse().to_dense()).square().sum().backward()
    print(table.weight.grad.is_sparse, table.weight.grad.coalesce().indices().tolist())
    optimizer.step()
digest(table)
