"""Queries that sqlsmith makes at random over the suites' schemas: no crash, no internal error, no lost session; and heap's answers."""
