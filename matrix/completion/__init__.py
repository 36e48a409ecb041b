"""Completion in bash, zsh and fish."""
