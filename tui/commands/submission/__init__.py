"""What `submit` needs for itself: its flags, its files, and what it says before it creates anything.

No other command uses it.
"""
