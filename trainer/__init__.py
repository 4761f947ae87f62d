"""What runs inside a job, and the two parts of it the console shares: its catalogue and its event files."""
