"""The tables of docs/explanation/results.md, each made by a command that anyone can repeat."""
