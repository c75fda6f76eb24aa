"""The scaffold of an operator's project: what it was asked for, and the files made from that."""
