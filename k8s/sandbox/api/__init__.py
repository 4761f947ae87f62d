"""The API server: what kubectl and every client of the sandbox talk to.

A request goes down: `server` routes it (`bodies` and `queries` read what it carries, `lists` and `views`
write the answer, `tables` and `discovery` for kubectl, `pod_log` and `pod_exec` for its streams); `registry`
makes the change right (`patches`, `ownership`, `shapes`, `defaults`, `checks`; deletion in `endings` and
`dependents`); `store` keeps it in SQLite. `served` names the kinds, `refused` every error.
"""
