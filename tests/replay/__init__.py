"""Tests of the replay buffer, one idea a file."""
