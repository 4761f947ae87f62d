"""Parts of `submit`: its flags, its files, and the checks before anything is created.

No other command uses them.
"""
