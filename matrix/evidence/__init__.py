"""What the operating system and the child itself say about one attempt: one collector a file, facts only."""
