"""Cluster address and credentials: kubeconfig, exec plugins, certificates, proxies.

Reads files and runs exec plugins; sends no request.
"""
