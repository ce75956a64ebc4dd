"""Settings of the trainings, one module a kind; light, unlike the loops that they set."""
