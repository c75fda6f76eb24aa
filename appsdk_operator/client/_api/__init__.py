"""The client's verbs: reads, writes, subresources, patches and discovery."""
