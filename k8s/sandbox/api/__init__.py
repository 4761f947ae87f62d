"""API server of the sandbox.

`server` routes a request: `bodies` and `queries` parse it, `lists` and `discovery` write
the answer, `streams` carry logs, exec and port-forward. `registry` admits a change
(`patches`, `defaults`, `validation`, `deletion`) and `store` saves it in SQLite.
"""
