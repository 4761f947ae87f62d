"""Runs and logs that outlive their jobs, notices and choices, in one database in the state folder.

`database` opens it and keeps it within its bounds; `kept_logs` stores logs and reads them as a cluster's;
`ledger` adds up the GPU time of jobs.
"""
