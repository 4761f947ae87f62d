"""Files that the console reads and writes: configuration, keys, tables.

Every file is written completely or not at all; nothing here draws.
"""
