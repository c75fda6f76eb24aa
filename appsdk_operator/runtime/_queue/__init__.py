"""The work queue, its state, and the delays of what is tried again."""
