"""The commands of ``appsdk-operator``, one a module.

``some_name.py`` holds the command ``some-name`` as ``command``. The first line of the module's
docstring is the command's line in the list of commands; it is read without importing the module.
"""
