"""Numbers and sentences as all reports write them."""
