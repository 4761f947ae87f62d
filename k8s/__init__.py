"""Access to Kubernetes, from the client up to jobs, logs and diagnosis; draws nothing."""
