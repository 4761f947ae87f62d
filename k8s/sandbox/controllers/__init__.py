"""Controllers: the pods of each job, and the nodes that they run on. They work against any cluster's API.

`operators` compares each job with the objects it controls and applies a plan (`reconcile`). The pods of most
kinds are planned by `replicas`, with the status of `kubeflow`, of `trainer` or of `tensorstack` on top.
`batch` plans Jobs, and Deployments such as that of a TensorBoard.
`scheduler` binds all pods of a job or none.
"""
