"""The sentences of a report: what computes hands over ids and values, and these modules make the words."""
