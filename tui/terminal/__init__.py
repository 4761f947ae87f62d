"""The terminal itself: driver, writer, tty state, line filters, clipboard, the shell in a pod.

Knows no view and no cluster.
"""
