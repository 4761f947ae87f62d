"""Parts of screens that draw themselves: tables, logs, forms, charts, the lines of the frame.

They know no screen and no cluster; what happens to them they say by message.
"""
