"""Compares loaders on the user's own images and transforms."""
