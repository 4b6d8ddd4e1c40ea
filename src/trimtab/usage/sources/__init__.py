"""Usage sources other than Prometheus: HTTP endpoints, the kubelet, metrics-server and NodeMetrics."""
