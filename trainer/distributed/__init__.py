"""What every trainer does with torch: a process group, a device, torchvision, curves, and how it ends.

Knows no trainer.
"""
