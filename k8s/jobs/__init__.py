"""What is done to jobs and in their pods: create, clone, suspend, exec, forward, read files.

Each asks the server once and translates its answer; none remembers what it did.
"""
