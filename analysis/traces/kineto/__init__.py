"""PyTorch's own traces (Kineto's JSON) of any year, read into columns and written from them."""
