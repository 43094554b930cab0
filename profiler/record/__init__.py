"""The recorder of a process, and the session that starts and ends it."""
