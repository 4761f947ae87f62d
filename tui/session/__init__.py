"""One connection to a cluster, and what views read through it: lists, objects, losses, telemetry.

A feed reads one thing while a view shows it, and reports changes. Nothing here draws.
"""
