"""The real etcd and kube-apiserver as child processes."""
