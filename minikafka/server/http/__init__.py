"""The HTTP server: metrics for Prometheus, health, and the status page."""
