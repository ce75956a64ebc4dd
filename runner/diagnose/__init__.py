"""The user's own network: one command measures everything that the engine can (`hess-run diagnose`)."""
