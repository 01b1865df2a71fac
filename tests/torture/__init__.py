"""Attacks on everything that is kept: kills, damage, full disks, power loss, hostile input.

By hand: ``PYTHONPATH=tests python -m torture``; its quick form is among the tests.
"""
