"""DAG, Exp. 5: the search for the published protocol among those that the paper leaves open."""
