"""Flower app that runs any method of cadis."""
