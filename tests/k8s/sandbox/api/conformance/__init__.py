"""Tests of the API that run on the sandbox and, marked `cluster`, on a real kube-apiserver."""
