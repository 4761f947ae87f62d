"""Words from outside made harmless, secrets masked, objects written as YAML.

Pure: knows no kind of object and asks no server.
"""
