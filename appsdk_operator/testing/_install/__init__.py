"""CRDs and webhook configurations from objects, files and folders, installed on any server."""
