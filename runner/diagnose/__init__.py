"""The user's own network: one command measures all that the engine can (`hess-run diagnose`)."""
