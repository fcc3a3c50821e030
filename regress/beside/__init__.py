"""Tests of what users run beside pystachio: other extensions' libraries, drivers, poolers. Most compare answers over foreign tables
with those over heap copies.

A part whose package can't be had is left out, and the run prints why (scripts/beside.sh).
"""
