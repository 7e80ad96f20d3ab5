"""The service: one web process that never computes, and worker processes that own the engine."""
