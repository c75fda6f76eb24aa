"""The controller: from a request in the queue to a reconcile and its outcome."""
