"""From a table to the arrays that a backend trains on: split, preprocess, encode, order. NumPy in, NumPy out."""
