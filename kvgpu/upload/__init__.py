"""What a publication sends to the device: the packed form, its staging memory, the kernel that scatters it."""
