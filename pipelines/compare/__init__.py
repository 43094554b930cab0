"""Loaders measured side by side on the user's own images and transforms."""
