"""What runs pods as processes of this machine, as a kubelet does. A client of the API, of any cluster's.

`agent` offers `nodes` and starts a `pod_run` for each pod bound to them; it prepares `volumes`, makes
`containers` into `processes`, each under a `shim`, and reports `pod_status`. `ports` are one job's own.
"""
