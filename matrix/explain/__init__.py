"""What the remains of a death prove that nobody watched, and the autopsy of a job that hangs right now."""
