"""Methods that keep one model for each cluster of clients."""
