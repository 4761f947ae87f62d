"""Our figures beside those of the tools we compare with, measured in one run on one machine."""
