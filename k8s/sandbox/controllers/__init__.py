"""What decides: which pods a job has, and on which nodes they run. Clients of the API, of any cluster's.

`operators` compares each job with its pods and applies a plan (`reconcile`), made in `batch` for a Job,
in `tensorstack` for T9k's kinds and in `replicated` for Kubeflow's; `scheduler` binds the pods, all of a job
or none, by `placement`.
"""
