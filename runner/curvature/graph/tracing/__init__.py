"""What `trace_module` needs: a module's batch, its calls, the data flow between them, and the replay of one node."""
