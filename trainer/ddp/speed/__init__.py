"""How fast a step is for the device: operations counted, the peak of known GPUs, and a batch that fits.

Nothing is claimed of a device that is not known.
"""
