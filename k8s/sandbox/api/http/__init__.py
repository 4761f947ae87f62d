"""Requests and answers.

Decides nothing about objects.
"""
