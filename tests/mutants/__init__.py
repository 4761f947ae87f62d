"""How much the tests notice: small breakages, one at a time, in a copy of the tree; no part of the checks."""
