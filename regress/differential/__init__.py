"""Runs the same queries over foreign tables and over heap copies in one database, and compares the output as text."""
