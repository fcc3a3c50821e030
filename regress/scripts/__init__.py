"""Tests of what a person runs first: the scripts that set up, build, install and show."""
