"""The same methods on Flower: simulation and real deployments."""
