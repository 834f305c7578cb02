"""The one seam below ``kvgpu``: streams, events and memory, on a real GPU or on the simulated device."""
