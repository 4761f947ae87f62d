"""The scheduler's arithmetic: what pods request, which nodes can take them, how many of a gang fit.

Pure, and the one copy: for diagnosis, the sandbox's scheduler, the rows of jobs and the form.
"""
