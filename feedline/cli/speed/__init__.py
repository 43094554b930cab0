"""``feedline verify`` for a change of speed: short runs of the training with and without it."""
