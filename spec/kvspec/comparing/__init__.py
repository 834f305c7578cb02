"""What a workload costs under one policy of ownership and under the other."""
