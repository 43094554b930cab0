"""What a change to the input would make of a recorded training, by replaying its loader."""
