"""The trainers: as functions, and as the processes of a job."""
