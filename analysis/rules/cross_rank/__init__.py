"""Rules about ranks that train together, from their recorded run or from their traces."""
