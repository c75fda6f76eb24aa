"""The functions of the language, one module a library, as tables of overloads."""
