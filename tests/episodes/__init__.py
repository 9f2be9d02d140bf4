"""Tests of episodes and their buffers."""
