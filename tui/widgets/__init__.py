"""Pieces of screens that know how to draw themselves, and nothing about a cluster."""
