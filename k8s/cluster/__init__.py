"""Live view of a cluster: mirrors of its collections, joined into one `ClusterSnapshot`.

`mirror` and its neighbours list, watch and retry; `joiner` and the row builders are pure, and a
row that did not change is the same value in the next join.
"""
