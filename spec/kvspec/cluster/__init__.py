"""Questions answered by the workers of a Dask cluster, as processes on this machine answer them.

`connect` finds or starts a cluster, `Cluster` has the calls of `kvspec.harness.workers.Workers`, and `answering` is what runs on
a worker. There, too, a process of its own answers each question: a system that ends its process costs that question alone.
"""
