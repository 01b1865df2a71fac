"""Methods with one model per cluster of clients."""
