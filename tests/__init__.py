"""Tests of ringback; the folders mirror the package."""
