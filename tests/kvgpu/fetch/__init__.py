"""Tests of kvgpu.fetch."""
