"""Operations on jobs and in their pods: create, clone, suspend, exec, forward, read files.

Each sends its request once and translates the answer; none keeps state.
"""
