"""What gpuconsole knows of Kubernetes: words, job kinds, one client, five things done with a cluster."""
