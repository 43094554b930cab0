"""Communication: what collectives moved, what they waited for, and for which rank."""
