"""The parts of ``kvspec fuzz``: what it is told, how lifecycles are gone through, what is said of them."""
