"""Runs what README and docs/ show, and compares their lists with the code's."""
