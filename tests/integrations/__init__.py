"""Tests of the parts that work with other libraries."""
