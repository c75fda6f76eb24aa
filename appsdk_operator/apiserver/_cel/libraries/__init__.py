"""The functions of CEL as tables of overloads, one module for each library."""
