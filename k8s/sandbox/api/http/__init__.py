"""Requests and answers: paths, queries, bodies, tables, discovery, lists and watches.

Decides nothing about objects; that is admission's.
"""
