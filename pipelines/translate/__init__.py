"""Translations of torchvision transforms into those of other libraries, one file a library."""
