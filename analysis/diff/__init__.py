"""How two runs, or several runs of two versions, differ: what changed, by how much, and by more than noise."""
