"""FedDRL: aggregation weights learned by deep reinforcement learning."""
