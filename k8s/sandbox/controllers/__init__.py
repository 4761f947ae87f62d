"""Controllers: the pods of each job, and the nodes that they run on. They work against any cluster's API.

`operators` compares each job with the objects it controls and applies a plan (`reconcile`). The pods of most
kinds are planned by `replicas`, with the status of `kubeflow` and `mpi` or of `tensorstack` on top. `batch`
plans a Job, `jobset` and `trainer` the Jobs of a TrainJob; `deployments` runs services such as a TensorBoard.
`scheduler` binds all pods of a job or none, by `placement`.
"""
