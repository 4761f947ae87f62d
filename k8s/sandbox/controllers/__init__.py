"""Controllers: the pods of each job, and the nodes that they run on. They work against any cluster's API.

`operators` compares each job with the objects it controls and applies a plan. The pods of all kinds are
planned by `reconcile`, with the status of `batch`, `kubeflow`, `trainer` or `tensorstack` on top. `batch`
plans Deployments too, such as that of a TensorBoard.
`scheduler` binds all pods of a job or none.
"""
