"""Text for screens and stdout: numbers, names, bars, filters.

Pure: draws nothing, knows no view.
"""
