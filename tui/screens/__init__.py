"""Full views and the dialogs over them, each with its `.tcss` beside it.

They arrange widgets and ask the app by `ActionRequest`; they change nothing on a cluster themselves.
"""
