"""One attempt: launch, limits, sampling, hang detection, the guardian, the hook inside the child."""
