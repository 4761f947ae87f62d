"""What can be learnt from: files of images and tokens, and what is made up on the spot.

Files are mapped or read image by image, never all into memory. Nothing here knows
of ranks: which samples a rank takes at each step is decided above.
"""
