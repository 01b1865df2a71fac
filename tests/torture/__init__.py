"""Attacks on stored data: kills, damaged files, full disks, power loss, invalid input.

Run all of them by ``PYTHONPATH=tests python -m torture``; a few trials are part of the tests.
"""
