"""The soak test: many sessions at random on both engines, for a time, while faults are injected."""
