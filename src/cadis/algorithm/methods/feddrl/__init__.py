"""FedDRL: aggregation weights learned with deep reinforcement learning."""
