"""API server of the sandbox.

`server` parses a request and routes it. `lists` and `discovery` write answers; `pod_log`, `pod_exec` and
`pod_forward` carry streams. `registry` admits a change (`patches`, `validation`, `deletion`) and `store`
saves it in SQLite.
"""
