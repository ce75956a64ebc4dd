"""The user's own network: one command measures everything that the engine knows to measure (`hess-run diagnose`)."""
