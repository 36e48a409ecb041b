"""`init`: from a command to a specification that runs as it is."""
