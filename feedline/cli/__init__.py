"""The commands, one file or package each, and what they share."""
