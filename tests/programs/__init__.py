"""Whole programs that must run as they are."""
