"""What a write must pass before it is stored: schemas, defaults, patches, field managers, deletion.

Knows objects and the store; no HTTP.
"""
