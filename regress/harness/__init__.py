"""What the test drivers share: a libpq session, EXPLAIN reading, counting of passed and failed claims.

Deliberately absent: anything outside Python's standard library.
"""
