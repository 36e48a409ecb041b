"""Why it dies: judgements on attempts, the catalogue of causes, the ranking and the verdict."""
