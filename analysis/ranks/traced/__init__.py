"""What ranks cost each other, from their traces: which waited for which, and what that one was doing meanwhile."""
