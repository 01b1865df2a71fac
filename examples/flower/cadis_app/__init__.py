"""Clustered federated learning on Flower."""
