"""Small breakages of the code, one at a time, in a copy of the tree: a measure of the tests."""
