"""Programs of other people, each killed from outside, and what `init` and `run` say about the death."""
