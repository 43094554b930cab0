"""Translations of torchvision transforms to other libraries, one file per library."""
