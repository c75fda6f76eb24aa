"""The roles of an operator: made from what it declares and what its tests needed, and checked."""
