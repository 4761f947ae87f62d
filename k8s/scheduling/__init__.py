"""The scheduler's arithmetic: what pods request, and which nodes could take them.

Pure; the one copy, for diagnosis, the sandbox's scheduler and the form.
"""
