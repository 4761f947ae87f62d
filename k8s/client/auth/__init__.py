"""Where a cluster is and who asks it: kubeconfig, exec plugins, certificates, proxies.

Reads files and runs exec plugins; sends no request.
"""
