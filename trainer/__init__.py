"""Programs that run inside a job; the console shares their catalogue and the event files."""
