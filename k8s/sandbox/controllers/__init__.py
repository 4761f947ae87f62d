"""What decides: which pods a job has, and on which nodes they run. Clients of the API, of any cluster's.

`operators` compares each job with what it controls and applies a plan (`reconcile`), made in `batch` for a
Job, `replicated` and `mpi` for Kubeflow's kinds, `trainer` and `jobset` for TrainJobs, `tensorstack` for
T9k's; `deployments` keeps services such as a TensorBoard. `scheduler` binds all of a job's pods or none, by
`placement`.
"""
