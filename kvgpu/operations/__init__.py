"""What changes a manager, one module an operation or a part of several; all or nothing (R3.14)."""
