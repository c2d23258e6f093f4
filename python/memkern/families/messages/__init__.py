"""Messages between ranks."""

PUBLIC = {"messages": "kernels:messages", "halo_time": "data:halo_time"}
