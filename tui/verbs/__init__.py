"""Verbs: the functions of the actions, in a file for each subject, and the changes that commands share.

They may use everything below the app and draw nothing themselves. `changes` is free of Textual.
"""
