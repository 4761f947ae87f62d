"""Values as words and marks for the screen and for stdout.

Pure: draws nothing, knows no view.
"""
