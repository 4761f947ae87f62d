"""One file per view, with its look beside it. Views arrange and ask; they do not fetch."""
