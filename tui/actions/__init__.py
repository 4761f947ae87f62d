"""What the actions of `tui.keys.actions` do: one function each, in a file for each subject.

A function takes the console and the request. Its file is imported when it is first asked for,
because a console is opened many times a day. May use everything below the app; draws nothing itself.
"""
