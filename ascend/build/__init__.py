"""From a checkpoint to a checked bundle: export, lint, audit, ATC, manifest, parity."""
