"""`trainshed up`: Redis, the API, control and a worker on this host, as children of one process.

Whatever ends `up`, nothing of it stays: a stop ends the children in reverse order; when `up` is killed, the kernel
sends each child SIGTERM (`shim.py`), and what a frozen child leaves behind is swept by the next `up` on the same home.
"""
