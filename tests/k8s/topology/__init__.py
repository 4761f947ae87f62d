"""The links between GPUs, and which of them work best together."""
