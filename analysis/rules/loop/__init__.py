"""Rules about the training loop outside models, backward passes and updates."""
