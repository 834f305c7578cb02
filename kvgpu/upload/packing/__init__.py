"""What a publication says, in few bytes: the packed form, and filling it beside the interpreter (R8.4, R7.6)."""
