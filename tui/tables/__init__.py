"""The columns of each list, declared once: cells of the console, texts of commands, values of JSON.

It draws nothing and fetches nothing.
"""
