"""Node agent: runs pods as processes of this machine, as a kubelet does, against any cluster's API.

`agent` registers `nodes` and starts a `pod_run` for each pod bound to them. A pod run prepares `volumes`,
turns `containers` into `processes`, each under a `shim`, and publishes the pod's status.
"""
