"""The recorder of one process, and the session that starts and ends it."""
