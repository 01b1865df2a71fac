"""The tables of docs/results.md, each made by a command that anyone can repeat."""
