"""Terminal layer: driver, writer, tty state, line filters, clipboard, pod shell.

Knows no view and no cluster.
"""
