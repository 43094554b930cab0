"""What ranks cost each other, from their traces: who waited, for whom, and what that one was doing meanwhile."""
