"""The API server: what kubectl and every client of the sandbox talk to.

A request goes down: `server` routes it (`bodies` and `queries` read what it carries, `lists` and
`representations` write the answer, `tables` and `discovery` for kubectl, `pod_log` and `pod_exec` for its
streams); `registry` admits the change (`patches`, `managed_fields`, `schemas`, `defaults`, `validation`,
`deletion` and `dependents`); `store` keeps it in SQLite. `served` names the kinds, `api_errors` every error.
"""
