"""Pages over time: what each step shows and has changed, for the terminal and as one page for a browser."""
