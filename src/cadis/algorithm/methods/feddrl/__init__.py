"""FedDRL: aggregation weights learned by reinforcement."""
